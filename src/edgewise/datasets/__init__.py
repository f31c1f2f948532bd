"""Graphs and models whose right explanation is known."""

from edgewise.datasets.infection import InfectionGraphs, TrainedInfection, infection, infection_model, infection_paths

__all__ = ["InfectionGraphs", "TrainedInfection", "infection", "infection_model", "infection_paths"]

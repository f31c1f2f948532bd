"""Graphs and models whose right explanation is known."""

from edgewise.datasets.infection import InfectionGraphs, TrainedInfection, infection, infection_model, infection_paths
from edgewise.datasets.planted import PlantedData, Trained
from edgewise.datasets.shelf import load, names

__all__ = [
    "InfectionGraphs",
    "PlantedData",
    "Trained",
    "TrainedInfection",
    "infection",
    "infection_model",
    "infection_paths",
    "load",
    "names",
]

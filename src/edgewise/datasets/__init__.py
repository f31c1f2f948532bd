"""Graphs and models whose right explanation is known."""

from edgewise.datasets.catalogue import load, names
from edgewise.datasets.infection import InfectionGraphs, TrainedInfection, infection, infection_model, infection_paths
from edgewise.datasets.planted_data import PlantedData, Trained

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

"""Graphs whose right explanation is known because it was planted, and models that learn the task.

Start with `planted_data.py`, what `load` returns; `catalogue.py` lists all data sets by name.
"""

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

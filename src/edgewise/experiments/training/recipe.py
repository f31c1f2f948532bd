"""What decides how a network comes out of training."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgewise.experiments.tasks import fingerprint

NODE_EPOCHS, GRAPH_EPOCHS, SENTENCE_EPOCHS = 1000, 2000, 100


@dataclass(frozen=True)
class Recipe:
    """The paper's settings are the defaults for nodes; `for_graphs` has those for graphs."""

    dataset: str
    architecture: str
    layers: int
    seed: int
    epochs: int = NODE_EPOCHS
    lr: float = 0.003
    weight_decay: float = 1e-5
    batch_size: int = 0
    """0: the whole graph at once."""

    @staticmethod
    def for_graphs(dataset: str, architecture: str, layers: int, seed: int, epochs: int | None = None) -> "Recipe":
        """Batches of 32 for 2000 epochs; the large Graph-SST2 in batches of 128 for 100."""
        large = dataset == "Graph-SST2"
        usual, decay, size = (SENTENCE_EPOCHS, 1e-6, 128) if large else (GRAPH_EPOCHS, 1e-4, 32)
        return Recipe(dataset, architecture, layers, seed, epochs or usual, weight_decay=decay, batch_size=size)

    @staticmethod
    def read(settings: Mapping[str, Any]) -> "Recipe":
        """From the settings of a task."""
        return Recipe(**settings["training"])

    @property
    def plain(self) -> dict[str, Any]:
        """As a dict that JSON can write."""
        return asdict(self)

    @property
    def key(self) -> str:
        """The name of the trained network."""
        return fingerprint("model", self.plain)

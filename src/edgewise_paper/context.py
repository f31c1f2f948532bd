"""Context: data sets, trained networks and explanations for the tasks of one process, each made once and kept."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from torch import Tensor, nn

import edgewise as ew
from edgewise.datasets.infection import TrainedInfection, infection_model
from edgewise_paper.data import NODE_SETS, GraphSet, NodeSet, Source, read_graph_set, read_node_set
from edgewise_paper.store import Store
from edgewise_paper.task import PaperOptions, fingerprint
from edgewise_paper.training import train
from edgewise_paper.training.networks import Recipe


class Context:
    """What every task of a process works with.

    Data sets stay in memory between tasks; networks and slow explanations are read from the store, or made and kept there.

    Args:
        options: Say where data sets lie, where the store is, and on which device to compute.
    """

    def __init__(self, options: PaperOptions) -> None:
        self.options = options
        self.store = Store(options.out)
        self._sets: dict[str, NodeSet | GraphSet] = {}
        self._infections: dict[int, TrainedInfection] = {}

    @cached_property
    def source(self) -> Source:
        """The folder or the downloads that data sets come from."""
        return Source(self.options.data, self.store.folder / "data")

    def read(self, name: str) -> NodeSet | GraphSet:
        """A real data set by its name."""
        if name not in self._sets:
            self._sets[name] = (read_node_set if name in NODE_SETS else read_graph_set)(name, self.source)
        return self._sets[name]

    def node_set(self, name: str) -> NodeSet:
        """A real graph whose nodes are classified."""
        found = self.read(name)
        assert isinstance(found, NodeSet)
        return found

    def graph_set(self, name: str) -> GraphSet:
        """A real set of graphs that are classified."""
        found = self.read(name)
        assert isinstance(found, GraphSet)
        return found

    def infection(self, seed: int) -> TrainedInfection:
        """The network of a seed on its own Infection graphs, trained once."""
        if seed not in self._infections:
            self._infections[seed] = infection_model(seed)
        return self._infections[seed]

    def trained(self, recipe: Recipe) -> tuple[nn.Module, float]:
        """The network of a recipe: read from the store, or trained and kept there.

        Returns:
            The network in eval mode, on the CPU, and the seconds that its training took.
        """
        found = self.read(recipe.dataset)
        kept = self.store.tensors("models", recipe.key)
        if kept is not None:
            if isinstance(found, NodeSet):
                model = train.untrained_on_nodes(recipe, found)
            else:
                model = train.untrained_on_graphs(recipe, found)
            model.load_state_dict(kept["model"])
            return model.eval(), kept["seconds"]
        checkpoint, device = _StoredCheckpoint(self.store, recipe.key), self.options.device
        if isinstance(found, NodeSet):
            model, seconds = train.train_on_nodes(recipe, found, device, checkpoint)
        else:
            model, seconds = train.train_on_graphs(recipe, found, device, checkpoint)
        self.store.keep_tensors("models", recipe.key, {"model": model.state_dict(), "seconds": seconds})
        self.store.drop("checkpoints", recipe.key)
        return model, seconds

    def explained(self, settings: Any, make: Callable[[], ew.ExplanationSet]) -> ew.ExplanationSet:
        """A set of explanations that takes long: read from the store, or made and kept there.

        Args:
            settings: Everything that decides the result; its fingerprint is the name in the store.
            make: Called if the store has none.
        """
        key = fingerprint("explanations", settings)
        found = self.store.explanations(key)
        if found is None:
            found = make()
            self.store.keep_explanations(key, found)
        return found

    def explain(self, model: nn.Module, data: Any, index: Tensor | None = None, **settings: Any) -> ew.ExplanationSet:
        """`ew.explain` of many targets on the chosen device."""
        found = ew.explain(model, data, index, device=self.options.device, **settings)
        assert isinstance(found, ew.ExplanationSet)
        return found


class _StoredCheckpoint:
    """Where a training writes how far it is: a file of the store (a `train.Checkpoint`)."""

    def __init__(self, store: Store, key: str) -> None:
        self.store, self.key = store, key

    def read(self) -> dict[str, Any] | None:
        return self.store.tensors("checkpoints", self.key)

    def write(self, state: dict[str, Any]) -> None:
        self.store.keep_tensors("checkpoints", self.key, state)

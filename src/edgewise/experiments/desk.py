"""What a task works with: data sets, trained networks and explanations, each made once and kept."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from torch import Tensor, nn

import edgewise as ew
from edgewise.experiments.datasets import NODE_SETS, GraphSet, NodeSet, read_graph_set, read_node_set
from edgewise.experiments.options import Options
from edgewise.experiments.sources import Source
from edgewise.experiments.store import Store
from edgewise.experiments.tasks import fingerprint
from edgewise.experiments.training import graphs, nodes
from edgewise.experiments.training.recipe import Recipe


class _Kept:
    """The notebook of a training: a file of the store."""

    def __init__(self, store: Store, key: str) -> None:
        self.store, self.key = store, key

    def read(self) -> dict[str, Any] | None:
        return self.store.tensors("checkpoints", self.key)

    def write(self, state: dict[str, Any]) -> None:
        self.store.keep_tensors("checkpoints", self.key, state)


class Desk:
    """One for each process; data sets stay in memory between tasks."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.store = Store(options.out)
        self._sets: dict[str, NodeSet | GraphSet] = {}

    @cached_property
    def source(self) -> Source:
        """Where data sets come from."""
        return Source(self.options.data, self.store.folder / "data")

    def node_set(self, name: str) -> NodeSet:
        """A graph whose nodes are classified."""
        found = self.read(name)
        assert isinstance(found, NodeSet)
        return found

    def graph_set(self, name: str) -> GraphSet:
        """Graphs that are classified."""
        found = self.read(name)
        assert isinstance(found, GraphSet)
        return found

    def read(self, name: str) -> NodeSet | GraphSet:
        """A real data set."""
        if name not in self._sets:
            self._sets[name] = (read_node_set if name in NODE_SETS else read_graph_set)(name, self.source)
        return self._sets[name]

    def trained(self, recipe: Recipe) -> tuple[nn.Module, float]:
        """A network in eval mode and the seconds that its training took: read, or trained and kept."""
        found = self.read(recipe.dataset)
        kept = self.store.tensors("models", recipe.key)
        if kept is not None:
            model = nodes.untrained(recipe, found) if isinstance(found, NodeSet) else graphs.untrained(recipe, found)
            model.load_state_dict(kept["model"])
            return model.eval(), kept["seconds"]
        notebook, device = _Kept(self.store, recipe.key), self.options.device
        if isinstance(found, NodeSet):
            model, seconds = nodes.train_on_nodes(recipe, found, device, notebook)
        else:
            model, seconds = graphs.train_on_graphs(recipe, found, device, notebook)
        self.store.keep_tensors("models", recipe.key, {"model": model.state_dict(), "seconds": seconds})
        self.store.drop("checkpoints", recipe.key)
        return model, seconds

    def explained(self, of: Any, make: Callable[[], ew.ExplanationSet]) -> ew.ExplanationSet:
        """A set of explanations that takes long: read, or made and kept. `of` are the settings that decide it."""
        key = fingerprint("explanations", of)
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

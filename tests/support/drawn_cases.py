"""A drawn case: a random model on a random graph, with its task, its targets and its slow twin."""

import linecache
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, GINEConv

from drawn_graphs import Size, draw_graph, draw_size
from model_grammar import OUTSIDE, Sketch, draw_model
from slow_twin import ONE, SlowTwin, Tape, number, predicted


@dataclass
class DrawnCase:
    """What a seed stands for."""

    seed: int
    task: str
    kind: str
    size: Size
    sketch: Sketch
    model: nn.Module
    twin: SlowTwin
    graphs: list[Data]
    """As the user gave them; one, but for graph tasks."""
    doubles: list[Data]
    """The same in float64."""
    index: list[Any]
    targets: list[int]
    of: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> Any:
        return self.graphs if self.task == "graph" else self.graphs[0]

    @property
    def outside(self) -> set[str]:
        return self.sketch.tags & OUTSIDE.keys()

    def double(self, position: int) -> Data:
        """The graph of a target."""
        return self.doubles[self.index[position]] if self.task == "graph" else self.doubles[0]

    def function(self, place: Any, target: int):
        """From ω and features to the explained number of one target."""
        graph = self.doubles[place] if self.task == "graph" else self.doubles[0]
        if self.task == "link":
            graph = graph.clone()
            graph.edge_label_index = torch.tensor(place).view(2, 1)
        row = place if self.task == "node" else 0

        def score(omega: Tensor | None = None, x: Tensor | None = None) -> Tensor:
            z, _ = self.twin.run(graph, self.sketch.arguments, omega, x)
            return z.view(-1)[0] if self.task == "link" else number(z[row], self.sketch.output, self.of, target)

        return score

    def chosen(self, place: Any) -> int:
        """The class that the model predicts for a target, or the column that is asked for."""
        if self.task == "link":
            return 1
        if self.sketch.output in ("value", "values"):
            return int(self.options.get("target", 0))
        graph = self.doubles[place] if self.task == "graph" else self.doubles[0]
        with torch.no_grad():
            z, _ = self.twin.run(graph, self.sketch.arguments)
        return predicted(z[place if self.task == "node" else 0], self.sketch.output)


def namespace(text: str, name: str, **known: Any) -> dict[str, Any]:
    """The names of a source; its lines can be shown in errors."""
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names: dict[str, Any] = {"__name__": "drawn", **known}
    exec(compile(text, name, "exec"), names)
    return names


def generic(model: nn.Module, seed: int) -> nn.Module:
    """Random values everywhere: PyG starts many parameters and statistics at exactly 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 1.2 / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 0.3
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale)
        for part in model.modules():
            if getattr(part, "running_var", None) is not None:
                part.running_mean.copy_(torch.randn(part.running_mean.shape, generator=generator) * 0.3)
                part.running_var.copy_(torch.rand(part.running_var.shape, generator=generator) + 0.5)
            if isinstance(part, (GINConv, GINEConv)):
                part.eps.fill_(0.3)
            if "Norm" in type(part).__name__ and getattr(part, "weight", None) is not None:
                part.weight += 1
    return model


def draw_case(seed: int) -> DrawnCase:
    """The same case for the same seed."""
    random = Random(seed)
    task = random.choices(["node", "graph", "link"], [6, 2, 2])[0]
    kind = random.choices(["tiny", "small", "large"], [1, 4, 0 if task == "graph" else 2])[0]
    size = draw_size(random, kind)
    traits = {"features": size.features, "parallel": size.parallel, "loops": size.loops, "task": task}
    sketch = draw_model(random, nodes=max(size.nodes, 50) if task == "graph" else size.nodes, **traits)
    dtype = torch.float32 if random.random() < 0.08 else torch.float64
    model, twin = _built(sketch, seed, dtype)
    graphs = _graphs(random, task, size, seed, dtype)
    doubles = [graph.clone().apply(lambda t: t.double() if t.is_floating_point() else t) for graph in graphs]
    for graph in doubles:
        graph.batch = torch.zeros(graph.num_nodes, dtype=torch.long)
    case = DrawnCase(seed, task, kind, size, sketch, model, twin, graphs, doubles, [], [], "logit")
    case.index = draw_index(random, case, random.randint(1, 2 if kind == "large" else 4))
    case.options, case.of = _options(random, case)
    case.targets = [case.chosen(place) for place in case.index]
    return case


def _built(sketch: Sketch, seed: int, dtype: torch.dtype) -> tuple[nn.Module, SlowTwin]:
    tape = Tape()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = generic(namespace(sketch.source, f"<drawn {seed}>")["Drawn"](), seed).to(dtype)
        twin = namespace(sketch.twin, f"<twin {seed}>", T=tape)["Drawn"]().double().eval()
    twin.load_state_dict(model.state_dict())
    return model, SlowTwin(twin, tape, sketch.layers)


def _graphs(random: Random, task: str, size: Size, seed: int, dtype: torch.dtype) -> list[Data]:
    if task != "graph":
        return [draw_graph(size, seed, dtype)]
    graphs = []
    for number_ in range(random.randint(2, 5)):
        nodes = random.randint(1, 14)
        edges = 0 if random.random() < 0.1 or nodes == 1 else random.randint(1, 3 * nodes)
        own = Size(nodes, edges, size.features, size.loops, size.parallel, size.hub)
        graphs.append(draw_graph(own, seed + number_, dtype))
    return graphs


def draw_index(random: Random, case: DrawnCase, count: int) -> list[Any]:
    """Targets, in any order: nodes, graphs or pairs."""
    if case.task == "graph":
        return random.sample(range(len(case.graphs)), min(count, len(case.graphs)))
    graph = case.graphs[0]
    receivers = graph.edge_index[1].tolist() or [0]
    some = [
        random.choice(receivers) if random.random() < 0.8 else random.randrange(case.size.nodes)
        for _ in range(2 * count)
    ]
    if case.task == "link":
        return [(some[2 * k], some[2 * k + 1]) for k in range(count)]
    return list(dict.fromkeys(some))[:count]


def _options(random: Random, case: DrawnCase) -> tuple[dict[str, Any], str]:
    output, options = case.sketch.output, {}
    of = random.choice(["prob", "log_prob"]) if random.random() < 0.2 else "logit"
    if output == "one":
        options["mode"] = "binary"
    if output in ("value", "values"):
        options["mode"] = "regression"
        of = "logit"
    if output == "values":
        options["target"] = random.randrange(case.sketch.classes)
    if case.task == "link" or output.startswith("odd"):
        of = "logit"
    if output in ONE - {"one"} and random.random() < 0.3:
        options["mode"] = "binary"
    if case.sketch.by_hand:
        options["forward"] = _forward(case.sketch.arguments, case.task)
    return options, of


def _forward(arguments: tuple[str, ...], task: str):
    if task == "link":
        rest = [name for name in arguments if name != "edge_label_index"]
        return lambda model, data, pairs: model(
            data.x, data.edge_index, **{name: data[name] for name in rest}, edge_label_index=pairs
        )
    return lambda model, data: model(data.x, data.edge_index, *(data[name] for name in arguments))

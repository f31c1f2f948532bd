"""A program that was proved on one graph, carried over to another one without running the model there.

What a program has of its graph are its features and the coefficients of its messages. Of the layers below the coefficients are
a formula of in-degrees, which a source of cuts knows without reading another hop. A transfer is made only of a recorded model
that does nothing with its graph but pass it to such layers, and is used only after it gave the recorded coefficients again, on
the graph on which the program was proved.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GINConv, GraphConv, SAGEConv

from edgewise.model.data_flow import Key, Operation, keys_of
from edgewise.model.trace import Trace
from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.base import Layer

Coefficients = tuple[Tensor | None, Tensor | None]
"""`[E]` of edges and `[N]` of added loops; None: all 1, or no loops."""
Formula = Callable[[Tensor, "Degrees"], Coefficients]
"""From ends `[2, E]`."""
_CLOSE = 1e-5


class Degrees(NamedTuple):
    """Of every node, in the whole graph: how many edges end in it, `[N]`, and how many of them are loops, `[N]`."""

    edges: Tensor
    loops: Tensor


def degrees_in(graph: Data) -> Degrees:
    """Of the nodes of a graph that has all edges which end in them.

    >>> degrees_in(Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0, 1], [1, 1]]))).edges.tolist()
    [0, 2]
    """
    first, second = graph.edge_index
    size = len(graph.x)
    return Degrees(torch.bincount(second, minlength=size), torch.bincount(second[first == second], minlength=size))


def _normalised(edge_index: Tensor, degree: Degrees) -> Coefficients:
    """GCN: 1 / √(degree of u · degree of v), where every node has one loop: its own (the last of them), or an added one.

    `improved=True` makes no difference: without edge weights PyG's loops have the weight 1 all the same.

    >>> edges, loops = _normalised(torch.tensor([[0], [1]]), Degrees(torch.tensor([0.0, 1.0]), torch.zeros(2)))  # 0 → 1
    >>> round(float(edges), 4), loops
    (0.7071, tensor([1.0000, 0.5000]))
    """
    root = (degree.edges - degree.loops + 1).pow(-0.5)
    coefficient = root[edge_index[0]] * root[edge_index[1]]
    _silence_first_loops(coefficient, edge_index)
    return coefficient, torch.where(degree.loops > 0, 0.0, root * root)


def _silence_first_loops(coefficient: Tensor, edge_index: Tensor) -> None:
    """Of several loops of a node only the last sends a message."""
    loops = (edge_index[0] == edge_index[1]).nonzero().view(-1)
    if len(loops) > 1:
        node = edge_index[0, loops]
        last = torch.full_like(loops, -1).scatter_reduce(0, torch.unique(node, return_inverse=True)[1], loops, "amax")
        coefficient[loops[~torch.isin(loops, last)]] = 0


def _mean(edge_index: Tensor, degree: Degrees) -> Coefficients:
    """A mean: 1 / number of messages that the receiver gets."""
    return (1 / degree.edges.clamp(min=1))[edge_index[1]], None


def _sum(edge_index: Tensor, degree: Degrees) -> Coefficients:
    """A plain sum."""
    return None, None


def _formula_of(module: Any) -> Formula | None:
    """How the coefficients of a layer follow from degrees; None if they do not, or that is not known."""
    if module.flow != "source_to_target":
        return None
    if type(module) is GCNConv and module.aggr in ("add", "sum"):
        known = module.normalize and module.add_self_loops and not module.cached
        return _normalised if known else None
    if type(module) in (SAGEConv, GraphConv, GINConv) and isinstance(module.aggr, str):
        return {"mean": _mean, "add": _sum, "sum": _sum}.get(module.aggr)
    return None


@dataclass(frozen=True, eq=False)
class Transfer:
    """A proved program, and the formula of each of its calls."""

    program: Program
    formulas: tuple[Formula, ...]

    @classmethod
    def of(cls, program: Program, recorded: Trace, graph: Data) -> "Transfer | None":
        """The transfer of a program, or None; `recorded` is a pass of the same model, with its tensors, on `graph`."""
        layers = [operation for operation in recorded.operations if operation.is_layer]
        formulas = [_formula_of(operation.function) for operation in layers]
        plain = program.kinds is None and program.is_chain and len(program.messages) == len(layers)
        if not plain or None in formulas or not _passes_its_graph_on(recorded, layers, graph):
            return None
        affine = all(isinstance(step.layer, AffineLayer) and step.receiver is None for step in program.messages)
        first = isinstance(program.messages[0].source, Rows)
        rest = all(isinstance(source, Ref) for step in program.steps[1:] for source in step.sources)
        return cls(program, tuple(f for f in formulas if f is not None)) if affine and first and rest else None

    def to(self, graph: Data, degree: Degrees) -> Program:
        """The program on another graph, whose nodes have these degrees in the whole graph."""
        degree = Degrees(*(part.to(graph.x.dtype) for part in degree))
        known = {formula: formula(graph.edge_index, degree) for formula in set(self.formulas)}
        steps = list[RowStep | MessageStep]()
        for step in self.program.steps:
            if isinstance(step, MessageStep):
                source = Rows(graph.x) if isinstance(step.source, Rows) else step.source
                step = replace(step, layer=_with(step.layer, *known[self.formulas[step.call]]), source=source)
            steps.append(step)
        return replace(self.program, steps=tuple(steps))

    def layer(self, call: int, edge_index: Tensor, degree: Degrees) -> AffineLayer:
        """The layer of a call on other edges `[2, E]`, whose nodes have these degrees, of the type of the features."""
        return _with(self.program.messages[call].layer, *self.formulas[call](edge_index, degree))

    def agrees(self, moved: Program, columns: Tensor, nodes: Tensor) -> bool:
        """Whether a moved program has the recorded coefficients, at some `columns` and `nodes` of the recorded graph."""
        for ours, theirs in zip(moved.messages, self.program.messages, strict=True):
            assert isinstance(ours.layer, AffineLayer)
            assert isinstance(theirs.layer, AffineLayer)
            pairs = (
                (ours.layer.coefficient, theirs.layer.coefficient, columns),
                (ours.layer.loop, theirs.layer.loop, nodes),
            )
            if not all(_same(mine, recorded, places) for mine, recorded, places in pairs):
                return False
        return True


def _with(layer: Layer, coefficient: Tensor | None, loop: Tensor | None) -> AffineLayer:
    """A layer with other coefficients."""
    assert isinstance(layer, AffineLayer)
    return replace(layer, coefficient=coefficient, loop=loop)


def with_degrees(graph: Data, degree: Degrees) -> Data:
    """The graph with as many edges into every node as it has in the whole graph: a layer that counts them counts right.

    The edges that are added end in nodes at the rim, of which no target sees what they receive: so they may begin anywhere, but
    for loops, which stay loops.

    >>> path = Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> with_degrees(path, Degrees(torch.tensor([2, 1, 1]), torch.tensor([1, 0, 0]))).edge_index
    tensor([[0, 1, 0, 1],
            [1, 2, 0, 0]])
    """
    first, second = graph.edge_index
    size, loop = graph.num_nodes, first == second
    there = torch.bincount(second, minlength=size), torch.bincount(second[loop], minlength=size)
    loops = degree.loops - there[1]
    plain = degree.edges - degree.loops - (there[0] - there[1])
    node = torch.arange(size, device=first.device)
    own, other = torch.repeat_interleave(node, loops), torch.repeat_interleave(node, plain)
    sender = (other == 0).long()  # node 0, or for node 0 the next
    part = copy.copy(graph)
    part.edge_index = torch.cat([graph.edge_index, torch.stack([own, own]), torch.stack([sender, other])], dim=1)
    return part


def _same(mine: Tensor | None, recorded: Tensor | None, places: Tensor) -> bool:
    if mine is None or recorded is None:
        return mine is recorded or (mine is not None and not bool(mine.any()))  # nobody got a loop
    return torch.allclose(mine, recorded.index_select(0, places), rtol=_CLOSE, atol=0)


def _passes_its_graph_on(recorded: Trace, layers: list[Operation], graph: Data) -> bool:
    """Whether nothing but the layers reads the graph: the first its features and edges, the others its edges alone."""
    inside = keys_of([value for value in graph.to_dict().values() if isinstance(value, Tensor)])
    data: set[Key] = {recorded.input_key, *inside}
    if any(not one.is_layer and any(key in data for key in one.inputs) for one in recorded.operations):
        return False
    edges = keys_of(graph.edge_index)[0]
    for number, one in enumerate(layers):
        allowed = {edges, recorded.input_key} if number == 0 else {edges}
        if edges not in one.inputs or not {key for key in one.inputs if key in data} <= allowed:
            return False
        if number == 0 and one.own_input != recorded.input_key:
            return False
    return True

"""PyG's questions about graphs with one type of nodes, as questions of ours: nodes, pairs, graphs, or rows of any kind.

`ways` lists how a question may be put, the quickest first. Each `GraphAsk` says what `explain` and `features` are to be given,
and where in PyG's graph the nodes and columns of the answer are. The last way is always right: the row of a graph task on the
whole of PyG's graph, once for each row that is asked about.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain.config import ModelTaskLevel

from edgewise.adapters.pyg_masks import ScoreBlock, edge_block, feature_blocks
from edgewise.adapters.pyg_question import PyGQuestion, model_output
from edgewise.api.question import Question
from edgewise.errors import LocalityWarning, ModelError
from edgewise.model.link_call import PAIRS
from edgewise.question.equality import close
from edgewise.random_numbers import uniform
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.feature_scores import FeatureSet

_OWN = "own_"
"""In front of the names of PyG's arguments in a graph task, where `batch` is the number of the copy."""
_DRAWS, _FEW, _SEED = 2, 3, 20261116
"""Random features with which graphs of a batch are run alone, how many graphs, and the seed of the features."""
_CONSTANT = ("ptr", "adj_t")
"""Names under which a `Data` has tensors of another meaning."""


@dataclass(frozen=True)
class GraphAsk:
    """What `explain` and `features` are given."""

    data: Any
    index: Any
    task: str
    forward: Callable[..., Tensor]
    nodes: tuple[Tensor, ...] = ()
    """For each target, PyG's numbers of the nodes of its graph; empty: all targets have PyG's graph."""
    columns: tuple[Tensor, ...] = ()
    """The same for columns."""


def edge_scores(question: PyGQuestion, options: Mapping[str, Any]) -> tuple[Iterator[ScoreBlock], int]:
    """Scores of PyG's columns, places layer · E + column, and the number of layers (1 at input level)."""
    found, ask = _answer(question, ways(question), lambda posed: posed.explain(**options))
    assert isinstance(found, ExplanationSet)
    layers = found.num_layers if found.level == "layer" else 1
    block, width = edge_block(found), question.edge_index.size(1)
    if ask.columns:
        own = torch.tensor([len(part) for part in ask.columns])[block.row].clamp(
            min=1
        )  # [n]: columns of the target's graph
        column = _taken(ask.columns, block.row, block.place % own)
        block = ScoreBlock(block.row, block.place // own * width + column, block.score)
    return iter([block]), layers


def node_scores(question: PyGQuestion, options: Mapping[str, Any]) -> Iterator[ScoreBlock]:
    """Feature scores of PyG's nodes, places node · F + feature; of `cam` and `grad_cam` nodes."""
    found, ask = _answer(question, ways(question, of_features=True), lambda posed: posed.features(**options))
    assert isinstance(found, FeatureSet)
    width = 1 if found.features is None else found.num_features
    for block in feature_blocks(found):
        if ask.nodes:
            node = _taken(ask.nodes, block.row, block.place // width)
            block = ScoreBlock(block.row, node * width + block.place % width, block.score)
        yield block


def _answer(
    question: PyGQuestion,
    asks: list[Callable[[PyGQuestion], GraphAsk]],
    verb: Callable[[Question], Any],
) -> tuple[Any, GraphAsk]:
    """The answer to the first way of asking that is about PyG's own numbers."""
    for way in asks:
        try:
            with warnings.catch_warnings():
                if way is of_rows:  # every row has the whole graph anyway
                    warnings.simplefilter("ignore", LocalityWarning)
                ask, posed = _posed(question, way)
                found = verb(posed)
        except ModelError:
            if way is asks[-1]:
                raise
            continue
        if way is asks[-1] or question.is_answered_by(found.value):
            question.check(found.value)
            return found, ask
    raise AssertionError  # the last way either answers or raises


def _posed(question: PyGQuestion, way: Callable[[PyGQuestion], GraphAsk]) -> tuple[GraphAsk, Question]:
    """The question of ours; edges and features are asked of the same one."""
    if way not in question.posed:
        ask = way(question)
        posed = Question(question.model, ask.data, ask.index, task=ask.task, forward=ask.forward, **question.number)
        question.posed[way] = ask, posed
    return question.posed[way]


def _taken(numbers: tuple[Tensor, ...], row: Tensor, place: Tensor) -> Tensor:
    """`[n]`: what stands at a place of the list of each row."""
    counts = torch.tensor([len(part) for part in numbers])
    return torch.cat(numbers)[(counts.cumsum(0) - counts)[row] + place]


# --- ways to ask -------------------------------------------------------------------------------------------------------


def ways(question: PyGQuestion, *, of_features: bool = False) -> list[Callable[[PyGQuestion], GraphAsk]]:
    """How the rows may be asked about, the quickest first."""
    level, extras = question.config.task_level, question.extras
    if level == ModelTaskLevel.node and len(question.output) == question.x.size(0):
        return [of_nodes, of_rows]
    if level == ModelTaskLevel.edge and question.output.size(1) == 1 and not of_features and _has_pairs(extras):
        return [of_pairs, of_rows]
    if level == ModelTaskLevel.graph and _has_apart_graphs(question):
        return [of_graphs, of_rows]
    return [of_rows]


def _has_pairs(extras: Mapping[str, Any]) -> bool:
    """Whether there are pairs `[2, R]`, or one pair `[2]`."""
    pairs = extras.get(PAIRS)
    return isinstance(pairs, Tensor) and pairs.dim() in (1, 2) and pairs.numel() > 0 and pairs.size(0) == 2


def _has_apart_graphs(question: PyGQuestion) -> bool:
    """Whether there are several graphs, and no edges between them."""
    batch = question.extras.get("batch")
    if (
        not isinstance(batch, Tensor)
        or batch.dim() != 1
        or len(batch) != question.x.size(0)
        or len(question.output) < 2
    ):
        return False
    source, receiver = batch[question.edge_index]
    if not bool((source == receiver).all()) or int(batch.max()) + 1 != len(question.output):
        return False
    return all(_is_alone(question, draw) for draw in range(_DRAWS))


def _is_alone(question: PyGQuestion, draw: int) -> bool:
    """Whether a few graphs get, with random features, the same rows by themselves as in the batch: no norm is over all of them.

    That the rows are equal for the features as they are is not enough: behind a ReLU that is closed, anything is.
    """
    x, (data, _) = question.x, _whole(question)
    random = uniform(_SEED, torch.tensor(draw), torch.arange(x.numel())).view(x.shape).to(x)
    data.x = x[(random[:, 0] if x.dim() > 1 else random).argsort()]
    if x.is_floating_point():
        data.x = data.x + (4 * random - 2) * x.detach().abs().amax()
    tensors, constants = _parted(question.extras)
    rows = model_output(question.model, data.x, question.edge_index, question.extras)
    for graph in question.rows[:_FEW].tolist():
        part = _part(data, graph)
        own = {name: part[name] for name in tensors}
        try:
            row = model_output(question.model, part.x, part.edge_index, {**own, **constants})
        except ModelError:
            return False
        if not close(row, rows[graph : graph + 1]):
            return False
    return True


def _whole(question: PyGQuestion) -> tuple[Data, dict[str, Any]]:
    """PyG's graph with the arguments that belong to it, and the others."""
    tensors, constants = _parted(question.extras)
    return Data(x=question.x, edge_index=question.edge_index, **tensors), constants


def _part(data: Data, graph: int) -> Data:
    """One graph of a batch, by itself."""
    part = data.subgraph(data.batch == graph)
    part.batch = torch.zeros_like(part.batch)
    return part


def _parted(extras: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The arguments that belong to the graph, and those that stay as they are."""
    tensors = {
        name: value
        for name, value in extras.items()
        if isinstance(value, Tensor) and value.dim() and value.layout == torch.strided and name not in _CONSTANT
    }
    return tensors, {name: value for name, value in extras.items() if name not in tensors}


def of_nodes(question: PyGQuestion) -> GraphAsk:
    """Every row is a node."""
    tensors, constants = _parted(question.extras)

    def forward(model: nn.Module, data: Data) -> Tensor:
        given = {name: data[name] for name in tensors}
        return question.logits(_as_columns(model(data.x, data.edge_index, **given, **constants)))

    return GraphAsk(_whole(question)[0], question.rows, "node", forward)


def of_pairs(question: PyGQuestion) -> GraphAsk:
    """Every row is the score of a column of `edge_label_index`."""
    tensors, constants = _parted({name: value for name, value in question.extras.items() if name != PAIRS})

    def forward(model: nn.Module, data: Data, pairs: Tensor) -> Tensor:
        given = {name: data[name] for name in tensors}
        found = model(data.x, data.edge_index, **given, **constants, **{PAIRS: pairs})
        return question.logits(_as_columns(found))

    data = Data(x=question.x, edge_index=question.edge_index, **tensors)
    pairs = question.extras[PAIRS].view(2, -1)
    return GraphAsk(data, pairs[:, question.rows.to(pairs.device)], "link", forward)


def of_graphs(question: PyGQuestion) -> GraphAsk:
    """Every row is a graph of a batch without edges between its graphs: each is asked about by itself."""
    names = list(_parted(question.extras)[0])
    data, constants = _whole(question)

    def forward(model: nn.Module, part: Data) -> Tensor:
        given = {name: part[name] for name in names}
        return question.logits(_as_columns(model(part.x, part.edge_index, **given, **constants)))

    batch, of_edge = data.batch, data.batch[question.edge_index[0]]
    parts = [_part(data, graph) for graph in question.rows.tolist()]
    nodes, columns = (
        tuple((owner == graph).nonzero().view(-1).cpu() for graph in question.rows.tolist())
        for owner in (batch, of_edge)
    )
    return GraphAsk(numbered(parts, question), question.rows, "graph", forward, nodes, columns)


def of_rows(question: PyGQuestion) -> GraphAsk:
    """A row of any kind: the one number of a graph task on all of PyG's graph, of which each row gets a copy."""
    tensors, constants = _parted(question.extras)
    size = len(question.output)
    whole = Data(x=question.x, edge_index=question.edge_index)
    for name, value in tensors.items():
        whole[_OWN + name] = value

    def forward(model: nn.Module, data: Data) -> Tensor:
        given = {name: data[_OWN + name] for name in tensors}
        found = _as_columns(model(data.x, data.edge_index, **given, **constants))
        return question.logits(picked_rows(found, data.asked_row, size))

    copies = []
    for row in question.rows.to(question.edge_index.device).view(-1, 1):
        copy = Data.from_dict(whole.to_dict())
        copy.asked_row = row
        copies.append(copy)
    return GraphAsk(numbered(copies, question), question.rows, "graph", forward)


def numbered(graphs: list[Data], question: PyGQuestion) -> list[Data]:
    """As many graphs as the output has rows, those of the asked rows at their places: random starts go by the row's number."""
    nothing = Data(x=graphs[0].x[:1], edge_index=graphs[0].edge_index[:, :0])
    found = [nothing] * len(question.output)
    for row, graph in zip(question.rows.tolist(), graphs, strict=True):
        found[row] = graph
    return found


def picked_rows(found: Tensor, asked: Tensor, size: int) -> Tensor:
    """`[T, C]`: the asked row of each of T copies, whose `size` rows each stand one after the other."""
    if size == 1 and len(found) == len(asked):
        return found
    if len(found) != len(asked) * size:
        raise ModelError(f"The model gave {len(found)} rows for {len(asked)} copies of a graph that has {size}.")
    return found[asked + torch.arange(len(asked), device=asked.device) * size]


def _as_columns(found: Any) -> Tensor:
    """`[rows, columns]` of what a model returns; the first tensor if it returns several."""
    rows: Tensor = found[0] if isinstance(found, (tuple, list)) else found
    return rows.view(-1, 1) if rows.dim() == 1 else rows

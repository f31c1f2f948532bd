"""PyG's questions about typed graphs (dictionaries by node type and edge type), as questions of ours.

Edges: rows that are those of a node type are a question about its nodes. Any other rows (a pooled graph, scores of pairs) are
laid onto the nodes of the largest type, a row on each; such a model is not local, so it is run on the whole graph. Features:
the nodes of all types in one table, as wide as the widest type, from which the model's dictionaries are made anew.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain.config import ModelTaskLevel

from edgewise.adapters.pyg_graph import numbered, picked_rows
from edgewise.adapters.pyg_masks import ScoreBlock, edge_block, feature_blocks
from edgewise.adapters.pyg_question import PyGQuestion
from edgewise.api.explain import explain
from edgewise.api.features import features
from edgewise.arguments import shown
from edgewise.errors import InputError, LocalityWarning, ModelError, OutputWarning
from edgewise.graph.type_table import TypeTable, check_typed, union_of
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.feature_scores import FeatureSet


def typed_data(question: PyGQuestion) -> HeteroData:
    """PyG's dictionaries as one graph; other arguments that are dictionaries by type go with it."""
    data = HeteroData()
    for name, x in question.x.items():
        data[name].x = x
    for kind, edges in question.edge_index.items():
        data[kind].edge_index = edges
    for name in _tables(question):
        for kind, value in question.extras[name].items():
            data[kind][name] = value
    check_typed(data)
    return data


def _tables(question: PyGQuestion) -> list[str]:
    """The arguments that are dictionaries of tensors by node type or edge type."""
    known = {*question.x, *question.edge_index}
    return [
        name
        for name, value in question.extras.items()
        if isinstance(value, Mapping) and set(value) <= known and all(isinstance(one, Tensor) for one in value.values())
    ]


def _called(question: PyGQuestion, model: nn.Module, data: HeteroData) -> Tensor:
    """`[rows, columns]`: what the model returns for (a part of) the typed graph."""
    given = dict(question.extras)
    for name in _tables(question):
        given[name] = {kind: data[kind][name] for kind in question.extras[name]}
    x = {name: data[name].x for name in question.x}
    found = model(x, {kind: data[kind].edge_index for kind in question.edge_index}, **given)
    rows: Tensor = found[0] if isinstance(found, (tuple, list)) else found
    return rows.view(-1, 1) if rows.dim() == 1 else rows


def whose_rows(question: PyGQuestion, node_type: str | None) -> str | None:
    """The node type whose nodes the rows are; None if they are rows of another kind."""
    counts = {name: len(x) for name, x in question.x.items()}
    size = len(question.output)
    if node_type is not None and node_type not in counts:
        raise InputError(f"`node_type` must be one of {', '.join(map(repr, counts))}, got {shown(node_type)}.")
    if question.config.task_level != ModelTaskLevel.node:
        return None
    alike = [name for name, count in counts.items() if count == size]
    if node_type is not None:
        if node_type not in alike:
            raise InputError(
                f"`node_type` must have as many nodes as the model's output has rows, {size}; {node_type!r} has "
                f"{counts[node_type]}. Leave it out, or name {' or '.join(map(repr, alike)) or 'none'}."
            )
        return node_type
    if len(alike) > 1:
        warnings.warn(
            f"The model gave one tensor of {size} rows: they may be those of {' or '.join(map(repr, alike))}, so every row is "
            f"explained on the whole graph. Use EdgewiseExplainer(..., node_type={alike[0]!r}) to say whose they are.",
            OutputWarning,
            stacklevel=2,
        )
    return alike[0] if len(alike) == 1 else None


# --- edges -------------------------------------------------------------------------------------------------------------


def typed_edge_scores(
    question: PyGQuestion, options: Mapping[str, Any], node_type: str | None
) -> tuple[Iterator[ScoreBlock], int]:
    """Scores of the columns of all edge types, one type after the other in PyG's order, and the number of layers."""
    data, name = typed_data(question), whose_rows(question, node_type)
    if name is not None:
        found = _of_nodes(question, data, name, options)
        if found is not None:
            return iter([edge_block(found)]), _layers(found)
    name = max(question.x, key=lambda kind: len(question.x[kind]))
    blocks, layers, count = [], 1, max(len(question.x[name]), 1)
    for start in range(0, len(question.output), count):
        part = ((question.rows >= start) & (question.rows < start + count)).nonzero().view(-1)
        if len(part):
            found = _laid(question, data, name, part, start, options)
            block, layers = edge_block(found), _layers(found)
            blocks.append(ScoreBlock(part[block.row], block.place, block.score))
    return iter(blocks), layers


def _layers(found: ExplanationSet) -> int:
    return found.num_layers if found.level == "layer" else 1


def _of_nodes(question: PyGQuestion, data: HeteroData, name: str, options: Mapping[str, Any]) -> ExplanationSet | None:
    """The rows as nodes of one type; None if what is explained so are other numbers."""

    def forward(model: nn.Module, part: HeteroData) -> Any:
        return {name: question.logits(_called(question, model, part))}

    found = explain(question.model, data, (name, question.rows), forward=forward, **question.number, **options)
    assert isinstance(found, ExplanationSet)
    return found if question.is_answered_by(found.value) else None


def _laid(
    question: PyGQuestion, data: HeteroData, name: str, part: Tensor, start: int, options: Mapping[str, Any]
) -> ExplanationSet:
    """Some of the asked rows; those of the output from `start` on are laid onto the nodes of a type."""
    size, places = len(question.output), question.rows[part] - start

    def forward(model: nn.Module, graph: HeteroData) -> Any:
        rows = _called(question, model, graph)
        count = int(graph[name].num_nodes)
        if len(rows) != size or count <= int(places.max()):
            raise ModelError(f"The model gave {len(rows)} rows, and {size} on the whole graph.")
        laid = question.logits(rows[start : start + count])
        return {name: torch.cat([laid, laid.new_zeros(count - len(laid), laid.size(1))])}

    number = dict(question.number)
    if isinstance(number["target"], Tensor):
        number["target"] = number["target"][part]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LocalityWarning)  # of course it is not: a row has no place in the graph
        found = explain(question.model, data, (name, places), forward=forward, **number, **options)
    assert isinstance(found, ExplanationSet)
    value = question.value().detach().cpu()
    value[part] = found.value.to(value.dtype)
    question.check(value)
    return found


# --- features ----------------------------------------------------------------------------------------------------------


def typed_node_scores(question: PyGQuestion, options: Mapping[str, Any]) -> dict[str, list[ScoreBlock]]:
    """Feature scores by node type, places node · F + feature of that type."""
    table = TypeTable.of(typed_data(question), next(iter(question.x)))
    copies = numbered(_copies(question, table), question)
    asked = {**question.number, "task": "graph", "forward": _UnionForward(question, table)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LocalityWarning)  # every row has the whole graph anyway
        found = features(question.model, copies, question.rows, **asked, **options)
    assert isinstance(found, FeatureSet)
    question.check(found.value)
    width = 1 if found.features is None else found.num_features
    blocks: dict[str, list[ScoreBlock]] = {name: [] for name in question.x}
    for block in feature_blocks(found):
        node, feature = block.place // width, block.place % width
        for name, x in question.x.items():
            numbers, own = table.node_range(name), 1 if found.features is None else x[:1].numel()
            inside = (node >= numbers.start) & (node < numbers.stop) & (feature < own)
            place = (node - numbers.start) * own + feature
            blocks[name].append(ScoreBlock(block.row[inside], place[inside], block.score[inside]))
    return blocks


def _copies(question: PyGQuestion, table: TypeTable) -> list[Data]:
    """The union of all types, once for each asked row; features are filled up with zeros to the widest type."""
    union = union_of(typed_data(question), table)
    first = next(iter(question.x.values()))
    for name, one in question.x.items():
        if one.dim() != 2 or one.dtype != first.dtype or not one.is_floating_point():
            raise InputError(
                f"Node masks of a typed graph need features [nodes, features] of one floating-point dtype, got "
                f"{one.dtype} of {one.dim()} dimensions for {name!r}. Leave node_mask_type out for its edges."
            )
    x = first.new_zeros(union.num_nodes, max(one.size(1) for one in question.x.values()))
    for name, one in question.x.items():
        numbers = table.node_range(name)
        x[numbers.start : numbers.stop, : one.size(1)] = one.detach()
    return [Data(x=x, edge_index=union.edge_index, asked_row=row) for row in question.rows.to(x.device).view(-1, 1)]


@dataclass(frozen=True)
class _UnionForward:
    """The model on copies of the union side by side: nodes of one type stand copy by copy, as do columns."""

    question: PyGQuestion
    table: TypeTable

    def __call__(self, model: nn.Module, data: Data) -> Tensor:
        question, count = self.question, len(data.asked_row)
        given, place = HeteroData(), torch.empty(len(data.x), dtype=torch.long, device=data.x.device)
        for name, x in question.x.items():
            rows = _spread(self.table.node_range(name), len(data.x) // count, count, place)
            place[rows] = torch.arange(len(rows), device=place.device)
            given[name].x = data.x[rows][:, : x.size(1)].to(data.x.dtype)
        for kind, columns in zip(question.edge_index, self.column_groups(data), strict=True):
            given[kind].edge_index = place[data.edge_index[:, columns]]
        of_types = typed_data(question)
        for name in _tables(question):
            for kind, value in question.extras[name].items():
                given[kind][name] = _repeated(of_types, kind, name, value, count).to(_like(value, data.x))
        return question.logits(picked_rows(_called(question, model, given), data.asked_row, len(question.output)))

    def column_groups(self, data: Data) -> list[Tensor]:
        """The columns of each edge type: no other column may take the place of one."""
        count = len(data.asked_row)
        ranges = map(self.table.edge_range, self.question.edge_index)
        return [_spread(one, data.edge_index.size(1) // count, count, data.edge_index) for one in ranges]


def _spread(numbers: range, size: int, count: int, like: Tensor) -> Tensor:
    """`[count · numbers]`: some numbers of each of several copies of a graph of that size."""
    own = torch.tensor(numbers, device=like.device, dtype=torch.long)
    return (torch.arange(count, device=like.device).view(-1, 1) * size + own).view(-1)


def _repeated(data: HeteroData, kind: Any, name: str, value: Tensor, count: int) -> Tensor:
    """An argument of a type for several copies: its rows again and again, if it has one for each node or edge."""
    store = data[kind]
    own = store.is_edge_attr(name) if isinstance(kind, tuple) else store.is_node_attr(name)
    return torch.cat([value.detach()] * count) if own else value.detach()


def _like(value: Tensor, x: Tensor) -> torch.dtype:
    """The precision in which an argument is given: that of the features, if it has any."""
    return x.dtype if value.is_floating_point() else value.dtype

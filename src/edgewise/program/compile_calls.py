"""A message-passing module as steps: its calls, and what it does to rows before and behind them.

A module reads one table of features, or a pair (senders, receivers). Its lowering (`layers/`) is a list of layers and row-wise
functions, one after the other; `SideBySide` among them are calls on the same rows whose results are added. With a pair, what
an affine layer adds of the receiver itself becomes a row-wise step of its own, scaled by s like a residual:

    SAGEConv((4, 5), 6)    MessageStep(B Σ c x_u + b), RowStep(linear(x_v · s, R)), RowStep(add)
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.model.data_flow import Call, Key, Operation
from edgewise.program.hop import CallPart
from edgewise.program.ir import Ref, Rows, Source
from edgewise.program.layers import lower_layer
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.affine_convs import check_every_edge
from edgewise.program.layers.attention import AttentionLayer
from edgewise.program.layers.base import Layer, SideBySide, Unsupported
from edgewise.program.layers.gine import EdgeReluLayer
from edgewise.program.layers.transformer import TransformerLayer
from edgewise.trees import tree_flatten, tree_leaves

if TYPE_CHECKING:
    from edgewise.program.compile import Compiler


class _Table(NamedTuple):
    """Features that a module reads."""

    tensor: Tensor
    key: Key


def add_layer(compiler: "Compiler", operation: Operation) -> None:
    """A message-passing module: its layers and row-wise functions as steps, one after the other.

    Its features must be tensors that can be followed, or constants; edges and edge features must be constants.
    """
    sent, own, is_pair = _features(operation)
    calls = [compiler.trace.calls[i] for i in operation.calls]
    parts = [_part(compiler, operation, call) for call in calls]
    kinds = (0, 0) if parts[0] is None else (parts[0].senders, parts[0].receivers)
    source = _source(compiler, operation, sent, kinds[0])
    others = [k for k in operation.inputs if k in compiler.known and k not in (sent.key, own.key if own else None)]
    if others:
        raise Unsupported(f"{operation.name} reads more than node features from earlier layers")
    pieces = _pieces(compiler, operation, calls, kinds[1])
    if is_pair:
        receiver = None if own is None else _source(compiler, operation, own, kinds[1])
        source, pieces = _first_of_pair(compiler, pieces, source, receiver, calls[0], parts[0])
        calls, parts = calls[1:], parts[1:]
    for piece in pieces:
        if isinstance(piece, Layer):
            source = compiler.add_message(piece, source, calls.pop(0), parts.pop(0))
        elif isinstance(piece, SideBySide):
            source = _side_by_side(compiler, piece, source, calls, parts)
        else:
            source = compiler.apply(piece, source, kinds[1])
    for key in operation.outputs:
        compiler.known[key] = source.value  # type: ignore[union-attr]


def _features(operation: Operation) -> tuple[_Table, _Table | None, bool]:
    """The features of senders, those of receivers where they are others, and whether a pair came that is not one tensor."""
    x = operation.kwargs.get("x", operation.args[0] if operation.args else None)
    leaves = tree_leaves((operation.args, operation.kwargs))
    keys = {id(leaf): key for leaf, key in zip(leaves, operation.inputs, strict=False) if isinstance(leaf, Tensor)}
    if isinstance(x, Tensor):
        return _Table(x, operation.own_input or keys[id(x)]), None, False
    if not isinstance(x, (tuple, list)) or len(x) != 2 or not isinstance(x[0], Tensor):
        raise Unsupported(f"{operation.name} is called with features that are no tensor and no pair of them")
    sent = _Table(x[0], keys[id(x[0])])
    if x[1] is None:
        return sent, None, True
    own = _Table(x[1], keys[id(x[1])])
    return (sent, None, False) if own.key == sent.key else (sent, own, True)


def _source(compiler: "Compiler", operation: Operation, table: _Table, kind: int) -> Source:
    """What stands for the features of a kind of nodes: a value, or constant rows."""
    key = table.key
    if key in compiler.waiting or key in compiler.stacks or any(k in compiler.lost for k in operation.inputs):
        raise Unsupported(f"{operation.name} reads what could not be followed")
    if key not in compiler.known:
        if table.tensor.dim() == 0 or len(table.tensor) != compiler.size(kind):
            raise Unsupported(f"{operation.name} reads features that are not those of all nodes")
        return Rows(constant(table.tensor, key))
    value = compiler.known[key]
    if compiler.shape[value][0] != 2 or compiler.kind[value] != kind:
        raise Unsupported(f"{operation.name} reads features that are not [nodes, width]")
    return Ref(value)


def _pieces(compiler: "Compiler", operation: Operation, calls: list[Call], kind: int) -> list[Any]:
    """The layers and row-wise functions of a module, by its lowering or else by the fallback; `kind` is that of receivers."""
    try:
        pieces = lower_layer(operation.function, calls, compiler.data)
    except Unsupported:
        if compiler.fallback is None or compiler.is_apart:
            raise
        return compiler.fallback(operation, compiler.data)
    if not compiler.is_apart:
        _check_columns(compiler, pieces, calls[0])
    if compiler.trace.typed is None:
        return pieces
    nodes = compiler.trace.typed.kinds.nodes[kind]
    return [piece.of_kind(nodes) if isinstance(piece, Layer) else piece for piece in pieces]


def _check_columns(compiler: "Compiler", pieces: list[Any], call: Call) -> None:
    """Refuse layers that would count columns that the call was not given, where columns are not told apart."""
    if isinstance(pieces[0], AttentionLayer):
        check_every_edge(call, compiler.data)
    one_by_one = isinstance(pieces[0], (EdgeReluLayer, TransformerLayer))
    if one_by_one and call.slots.numel() != compiler.data.edge_index.size(1):
        raise Unsupported(f"{call.name} is called with some of the edges only")


def _part(compiler: "Compiler", operation: Operation, call: Call) -> CallPart | None:
    """The columns of a call, and the kinds of nodes at their ends; None if there is nothing to tell apart."""
    if not compiler.is_apart:
        return None
    edge_index, typed = compiler.data.edge_index, compiler.trace.typed
    used = call.slots[call.slots < edge_index.size(1)]
    if len(used.unique()) != len(used):
        raise Unsupported(f"{operation.name} sends several messages on one column")
    columns = torch.zeros(edge_index.size(1), dtype=torch.bool, device=edge_index.device)
    columns[used] = True
    if typed is None:
        return CallPart(columns)
    given = [typed.ends[key] for key in operation.inputs if key in typed.ends]
    if not given:  # another edge_index than those of the data: the kinds are those of the nodes at the ends
        ends = typed.kinds.of_node[edge_index[:, used]]  # [2, columns]
        given = [(int(a), int(b)) for a, b in ends.unique(dim=1).t()]
    if len(given) != 1:
        raise Unsupported(f"{operation.name} sends between nodes of several types at once")
    source, target = given[0] if call.flow == "source_to_target" else given[0][::-1]
    return CallPart(columns, source, target)


def _side_by_side(
    compiler: "Compiler", piece: SideBySide, source: Source, calls: list[Call], parts: list[CallPart | None]
) -> Source:
    """Calls on the same rows, and the sum of what they make; `unweighted` is added of each node itself, whatever s is."""
    total: Source | None = None
    depth = calls[0].layer
    kind = 0 if parts[0] is None else parts[0].receivers
    for one in piece.layers:
        part = parts[one.call]
        if one.columns is not None and part is not None:
            part = replace(part, columns=one.columns)
        made = compiler.add_message(one.layer, source, calls[one.call], part)
        total = made if total is None else _added(compiler, total, made, kind)
    assert total is not None
    if piece.unweighted is not None:
        root = _linear(compiler, source, piece.unweighted, kind, depth)
        total = _added(compiler, total, root, kind)
    return total


def _first_of_pair(
    compiler: "Compiler", pieces: list[Any], source: Source, own: Source | None, call: Call, part: CallPart | None
) -> tuple[Source, list[Any]]:
    """The first layer of a module that reads a pair of tables, and the pieces that follow it."""
    layer, *rest = pieces
    if isinstance(layer, AttentionLayer) and own is not None and layer.loop_edge is None:
        return compiler.add_message(layer, source, call, part, own), rest
    if not isinstance(layer, AffineLayer) or layer.loop is not None:
        raise Unsupported(f"{call.name} is called with a pair of features")
    received = compiler.add_message(replace(layer, root=None), source, call, part)
    if layer.root is None or own is None:
        return received, rest
    kind = 0 if part is None else part.receivers
    matrix = layer.root if isinstance(layer.root, Tensor) else None
    if isinstance(layer.root, float):
        matrix = None if layer.matrix is None else layer.matrix * layer.root
    scaled = replace(own, own_call=call.layer)
    if matrix is not None:
        mine = _linear(compiler, scaled, matrix, kind, call.layer)
    else:
        leaves, form = tree_flatten(((scaled, layer.root), {}))
        mine = Ref(compiler.add_row_step(torch.mul, leaves, form, kind=kind).output)
    return _added(compiler, received, mine, kind), rest


def _linear(compiler: "Compiler", source: Source, matrix: Tensor, kind: int, depth: int) -> Source:
    """A matrix `[out, in]` times each row, behind the calls of a depth."""
    leaves, form = tree_flatten(((source, matrix), {}))
    return Ref(compiler.add_row_step(functional.linear, leaves, form, kind=kind, least=depth + 1).output)


def _added(compiler: "Compiler", a: Source, b: Source, kind: int) -> Source:
    leaves, form = tree_flatten(((a, b), {}))
    return Ref(compiler.add_row_step(torch.add, leaves, form, kind=kind).output)


def constant(tensor: Tensor, key: Key) -> Tensor:
    """A tensor that no layer made; it must still be what it was when it was used."""
    if key is not None and key[0] == id(tensor) and tensor._version != key[1]:
        raise Unsupported("a constant is changed in place after it was used")
    return tensor.detach()

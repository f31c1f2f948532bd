"""What each target loses by a block of missing messages: through all calls, and off the output.

Mostly the explained numbers are columns of what the last layer sums up; then that call needs one number for each
(slot, target), not a row: `_last_columns` adds up its parts. Otherwise (`_read_off`) the last call gives changed rows like any
other, and the number is computed from them.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

from edgewise.program.ir import MessageStep, Ref
from edgewise.program.kernels import arrays, kernels_for
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.part_changes import PartChange
from edgewise.program.perturbation import Differences, Drops, MissingMessages
from edgewise.program.perturbation_forward import ForwardChange

_Parts: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]


def drops(differences: Differences, slots: MissingMessages) -> Drops:
    """What every target loses by each of these missing messages.

    The example of `perturbation.py`: the path 0 → 1 → 2, features (1, 10, 100), each call adds to a node what it receives.

    >>> from torch_geometric.data import Data
    >>> from edgewise.graph.computation_graph import InEdges
    >>> from edgewise.program.ir import Program, Rows
    >>> from edgewise.program.lowering import Lowering
    >>> from edgewise.question.target import Target
    >>> path = Data(x=torch.tensor([[1.0], [10.0], [100.0]]), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> plus = AffineLayer(coefficient=None, root=1.0)
    >>> program = Program((MessageStep(plus, Rows(path.x), 0, call=0), MessageStep(plus, Ref(0), 1, call=1)), 1, num_calls=2)
    >>> lowering = Lowering(program, path, InEdges.of(path.edge_index, 3), torch.float32)
    >>> lowering.settle().view(-1)
    tensor([  1.,  12., 121.])
    >>> node = torch.tensor([2])
    >>> target = Target(column=torch.tensor([0]), mode="regression", of="logit", truth=torch.tensor([[121.0]]))
    >>> differences = Differences(lowering, node, target)
    >>> slots = differences.slots("layer", of_self=False)
    >>> slots.item.tolist(), slots.call.tolist()                    # e0 and e1 in call 0, e1 in call 1
    ([0, 1, 1], [0, 0, 1])
    >>> drops(differences, slots).score.tolist()
    [1.0, 10.0, 11.0]
    >>> drops(differences, differences.slots("input", of_self=False)).score.tolist()         # missing in both calls
    [1.0, 21.0]
    """
    if not differences.program.is_chain:
        return PartChange(differences, slots).drops()
    block = ForwardChange(differences, slots)
    for step, segment in zip(differences.steps, differences.segments, strict=True):
        if step is differences.steps[-1] and differences.columns_only:
            return _last_columns(block, step)
        block.through(step, segment)
    output = differences.program.output
    return _read_off(block, differences.known[output].index_select(0, block.pairs.node) + block.change[output])


def _read_off(block: ForwardChange, rows: Tensor) -> Drops:
    """The drops from the changed rows of the model's output, `[pairs, columns]`: old number − new number."""
    pair, position = block.at_targets()
    drop = block.all.value[position] - block.all.target.select(position).value(rows.index_select(0, pair))
    kept = (drop != 0).nonzero().view(-1)
    return Drops(position[kept], block.pairs.slot[pair][kept], drop[kept])


def _last_columns(block: ForwardChange, step: MessageStep) -> Drops:
    """The last call, one number for each (slot, target): only the target's own column is summed up.

    Every part (`_last_parts`) has entries (slot, node, weight, row); those at a target become (slot · T + position, number),
    and numbers with the same key are added. For a binary target the number is the logit, negated for class 0 (`sign`).
    """
    target, value, width = block.all.target, block.all.value, len(block.all.targets)
    binary = target.mode == "binary"
    column = torch.zeros_like(target.column) if binary else target.column
    sign = torch.where(target.column == 1, 1, -1).to(value) if binary else torch.ones_like(value)
    kernels = kernels_for(len(block.pairs), block.pairs.key)
    if kernels is not None:
        return _last_compiled(kernels, block, step, column, sign)
    groups = block.targets_by_node()
    order, entries = groups.edge, []
    for slot, node, weight, rows in _last_parts(block, step):  # [n], [n], [n], [n, columns]
        entry, place = groups.of_nodes(node)  # entries at a target
        position = order[place]
        amount = rows.reshape(-1).index_select(0, entry * rows.size(1) + column[position]) * weight[entry]
        entries.append((slot[entry] * width + position, -amount * sign[position]))
    if not entries:
        return Drops(order[:0], order[:0], value[:0])
    key, amount = (torch.cat(column) for column in zip(*entries, strict=True))
    if len(block.pairs):  # several ways lead to one target
        key, inverse = key.unique(return_inverse=True)
        amount = amount.new_zeros(len(key)).index_add_(0, inverse, amount)
    kept = amount.nonzero().view(-1)
    return Drops(key[kept] % width, key[kept] // width, amount[kept])


def _last_compiled(kernels: Any, block: ForwardChange, step: MessageStep, column: Tensor, sign: Tensor) -> Drops:
    """The same as a compiled loop, in as many rounds as a node is asked for (with other classes)."""
    assert isinstance(step.layer, AffineLayer)
    block.group()
    moved, own, coefficient = block.rows_to_carry(step, step.layer)
    out, skips = block.all.out_edges, (block.silent(step.call), block.silent_self(step.call))
    geometry = (out.start, out.edge, out.sender, *skips, coefficient, moved, own)
    missing = [(slot * block.num_nodes + node, node, rows) for slot, node, _, rows in _missing_parts(block, step)]
    found = []
    for position in _once_each(block):
        of_node = torch.full((block.num_nodes,), -1, device=column.device)  # [N]: the position of the target, or −1
        of_node[block.all.targets[position]] = position
        extra, amount = moved.new_zeros(0, dtype=torch.long), sign[:0]
        for key, node, rows in missing:
            hit = (of_node[node] >= 0).nonzero().view(-1)
            extra, amount = key[hit], -rows[hit].gather(1, column[of_node[node[hit]]].view(-1, 1)).view(-1)
        found.append(
            kernels.carry_to_targets(
                *arrays(block.pairs.key, extra, amount), block.num_nodes, *arrays(*geometry), *arrays(of_node, column)
            )
        )
    position, slot, change = (torch.cat([torch.from_numpy(a) for a in parts]) for parts in zip(*found, strict=True))
    return Drops(position, slot, -change if block.all.target.mode != "binary" else -change * sign[position])


def _once_each(block: ForwardChange) -> list[Tensor]:
    """Positions in rounds, no node twice in a round."""
    order = block.targets_by_node().edge
    nodes = block.all.targets[order]
    rank = torch.arange(len(order), device=order.device) - torch.searchsorted(nodes, nodes)
    return [order[rank == turn] for turn in range(int(rank.max()) + 1)]


# --- Parts of the last call: slot, node that receives, coefficient ([n] each), and rows [n, columns] -------------------


def _last_parts(block: ForwardChange, step: MessageStep) -> Iterator[_Parts]:
    """All changes that arrive in the last call: the change of an output is the sum of coefficient · row."""
    yield from _missing_parts(block, step)
    if isinstance(step.source, Ref):
        yield from _own_parts(block, step, block.change[step.source.value])
        yield from _carried_parts(block, step, block.change[step.source.value])


def _carried_parts(block: ForwardChange, step: MessageStep, moved: Tensor) -> Iterator[_Parts]:
    """What changed senders change in their receivers."""
    assert isinstance(step.layer, AffineLayer)
    source, edge, reached = block.spread(block.pairs, step.call)
    carried = step.layer.difference(moved).index_select(0, source)
    yield reached // block.num_nodes, reached % block.num_nodes, step.layer.coefficients(edge, carried), carried


def _own_parts(block: ForwardChange, step: MessageStep, moved: Tensor) -> Iterator[_Parts]:
    """What changed nodes change in themselves, through their own term."""
    assert isinstance(step.layer, AffineLayer)
    kept = block.own_kept(block.pairs, step.call) & block.near(block.pairs.node, step.call)
    stays = kept.nonzero().view(-1)
    own = step.layer.own_difference(moved.index_select(0, stays), block.pairs.node[stays])
    if own is not None:
        yield block.pairs.slot[stays], block.pairs.node[stays], torch.ones_like(own[:, 0]), own


def _missing_parts(block: ForwardChange, step: MessageStep) -> Iterator[_Parts]:
    """The missing message itself, taken away."""
    assert isinstance(step.layer, AffineLayer)
    missing = block.missing(step.call)
    item = block.slots.item[missing]
    rows = block.missing_rows(step, step.layer, missing)
    if rows is not None:
        node = item if block.slots.of_self else block.all.receiver[item]
        yield missing, node, -torch.ones_like(rows[:, 0]), rows

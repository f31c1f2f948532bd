"""Edge scores that come from walks: LRP (sums over all walks through an edge), and GOAt as the paper reads it.

Here pairs are not merged: every column of `edge_index` has a pair of its own in each call, so a step of a walk is an edge.

Example: `edgewise.examples.triangle_model`, node 2 explained. Its walks are (0, 0, 2) with 3, (0, 1, 2) with 6, (0, 2, 2) with
−2 and (2, 2, 2) with −1. The edge 0 → 2 is taken by (0, 0, 2) in layer 1 and by (0, 2, 2) in layer 0, so its LRP score is 3 −
2 = 1 at input level. Steps that stay belong to no edge.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from edgewise.errors import SettingError
from edgewise.question import PosedQuestion
from edgewise.score import SparseScores
from edgewise.walk.network import AnyNetwork
from edgewise.walk.prefixes import Prefixes, starting
from edgewise.walk.search.exhaustive import count_walks
from edgewise.walk.sums import step_sums
from edgewise.walk.target_blocks import TargetBlock, read_rule, target_blocks


def _column_of_pair(network: AnyNetwork, call: int) -> Tensor:
    """`[pairs]`: the column of each pair, −1 where a node stays; pairs must not be merged."""
    geometry = network.geometry(call)
    column = torch.full((len(geometry),), -1, dtype=torch.long, device=geometry.receiver.device)
    columns = torch.arange(len(geometry.edge_pair), device=column.device)
    column[geometry.edge_pair] = columns % max(network.recording.num_columns, 1)  # one edge, whatever the direction
    return column


def _sparse(
    block: TargetBlock, layer: Tensor, target: Tensor, column: Tensor, score: Tensor, dtype: torch.dtype
) -> SparseScores:
    """Scores of a block `[n]` as entries of the question: positions instead of targets, columns of the user's own graph."""
    device = column.device
    position, first = block.positions.to(device)[target], block.first_edge.to(device)[target]
    return SparseScores(position, layer, block.columns(column - first), score.to(dtype), of_self=False)


def lrp(
    question: PosedQuestion, level: str, memory: int, *, rule: str, epsilon: float, gamma: float | Sequence[float],
    attention: str, norm: str | None,
) -> Iterator[tuple[int, SparseScores]]:  # fmt: skip
    """Score an edge (in a layer) by the sum of the relevance, under the rule, of all walks through it.

    Each block comes with how many targets it has. Args: as for `ew.walks`; `memory` in bytes.
    """
    how = read_rule(rule, epsilon, gamma, attention, norm, merged=False)
    for block in target_blocks(question, how, memory, beam=64, bounded=False):
        parts = []
        for sums in step_sums(block.network, block.front, block.owner):
            column = _column_of_pair(block.network, sums.call)[sums.pair]
            kept = ((column >= 0) & (sums.score != 0)).nonzero().view(-1)
            layer = torch.full_like(kept, sums.call)
            parts.append((layer, sums.target[kept], column[kept], sums.score[kept]))
        layer, target, column, score = (torch.cat(part) for part in zip(*parts, strict=True))
        layer = layer if level == "layer" else torch.zeros_like(layer)
        layer, target, column, score = _together(layer, target, column, score, block)
        yield block.num_targets, _sparse(block, layer, target, column, score, question.target.truth.dtype)


def _together(layer: Tensor, target: Tensor, column: Tensor, score: Tensor, block: TargetBlock) -> tuple[Tensor, ...]:
    """One score for each (layer, target, column): the sum over what a column sent in either direction."""
    size, targets = block.network.recording.num_columns, block.num_targets
    key, place = torch.unique((layer * targets + target) * size + column, return_inverse=True)
    total = score.new_zeros(len(key)).index_add_(0, place, score)
    return key // (size * targets), key // size % targets, key % size, total


_WALKS_AT_ONCE = 2**18
_BYTES_A_NUMBER = 8 * 8  # of a walk's vector: with those that it is made of, and what the halves that wait hold
_MOST_WALKS = 20_000_000  # of one target
_PIECES = 8  # pieces that wait before their keys are summed up


def goat_walks(
    question: PosedQuestion, level: str, memory: int, *, attention: str, norm: str | None
) -> Iterator[tuple[int, SparseScores]]:
    """Score an edge by Σ over the walks through it of relevance / number of distinct factors.

    A walk of L steps has 2L + (distinct adjacency entries) factors. This is the walk part of GOAt as the KDD 2025 paper states
    it (its proposition on GOAt), without the redistribution of biases and activations of Lu et al., ICLR 2024: not their
    scores. Every walk is gone through, because those that use an edge twice have a factor less.
    """
    if level != "input":
        raise SettingError(
            "goat_walks scores edges, not layers: an edge used in two layers is one factor. Use level='input'."
        )
    how = read_rule("gradient", 0.0, 0.0, attention, norm, merged=False)
    for block in target_blocks(question, how, memory, beam=64, bounded=False):
        _refuse_too_many(block)
        size = block.network.recording.num_columns
        key, total = _summed(
            _goat_parts(block.network, starting(block.front, block.owner, block.network.num_calls), size, memory)
        )
        entries = _sparse(block, torch.zeros_like(key), key // size, key % size, total, question.target.truth.dtype)
        yield block.num_targets, entries


def _summed(parts: Iterator[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Every key once, with its sum; walks are many and edges are few, so pieces are summed up as they come."""
    waiting: list[tuple[Tensor, Tensor]] = []
    for part in parts:
        waiting.append(part)
        if len(waiting) == _PIECES:
            waiting = [_sum(waiting)]
    return _sum(waiting)


def _sum(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Every key of some pieces once, with its sum."""
    key, place = torch.unique(torch.cat([key for key, _ in parts]), return_inverse=True)
    score = torch.cat([score for _, score in parts])
    return key, score.new_zeros(len(key)).index_add_(0, place, score)


def _refuse_too_many(block: TargetBlock) -> None:
    """Refuse a block with a target that has too many walks to go through."""
    count = count_walks(block.network, block.front, block.owner, block.num_targets)
    if len(count) and float(count.max()) > _MOST_WALKS:
        raise SettingError(
            f"goat_walks goes through every walk: {float(count.max()):.3g} for one of the targets, and at most {_MOST_WALKS:,} "
            f"are possible. Use method='gradient', level='layer', or method='lrp'."
        )


def _goat_parts(network: AnyNetwork, roots: Prefixes, num_edges: int, memory: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Pieces of (target · E + column, relevance / factors) of every edge of every walk.

    Prefixes go back call by call; `pairs` `[P, steps]` are the pairs that they took, the earliest call first. What makes too
    many steps is split in two halves first.
    """
    no_pairs = torch.zeros(len(roots), 0, dtype=torch.long, device=roots.target.device)
    waiting = [(roots, no_pairs)]
    most = max(min(_WALKS_AT_ONCE, memory // (_BYTES_A_NUMBER * network.widest)), 1)
    while waiting:
        prefixes, pairs = waiting.pop()
        call = prefixes.call
        start = network.geometry(call).in_pairs.start
        count = (start[prefixes.front.node + 1] - start[prefixes.front.node]).cumsum(0)
        if len(prefixes) > 1 and int(count[-1]) > most:
            half = torch.arange(len(prefixes), device=count.device).chunk(2)
            waiting += [(prefixes.select(part), pairs[part]) for part in half]
            continue
        parent, pair = network.children(call, prefixes.front.node)
        steps = torch.cat([pair.view(-1, 1), pairs[parent]], dim=1)
        if call == 0:
            yield _shares(
                network, prefixes.target[parent], steps, network.scores(prefixes.front, parent, pair), num_edges
            )
            continue
        sender = network.geometry(call).sender[pair]
        front = network.arrive(call, sender, network.onward(call, prefixes.front, parent, pair))
        target = prefixes.target[parent]
        waiting.append((Prefixes(call - 1, front, target, prefixes.bound[parent], prefixes.nodes[parent]), steps))


def _entries(network: AnyNetwork, call: int) -> Tensor:
    """`[pairs]`: a number for the adjacency entry of each pair; an edge that sends against its column is the same entry."""
    geometry = network.geometry(call)
    mirrored = torch.zeros_like(geometry.is_own)
    mirrored[geometry.edge_pair[network.recording.num_columns :]] = True
    sender = torch.where(mirrored, geometry.receiver, geometry.sender)
    receiver = torch.where(mirrored, geometry.sender, geometry.receiver)
    return receiver * geometry.num_nodes + sender


def _shares(network: AnyNetwork, target: Tensor, steps: Tensor, score: Tensor, num_edges: int) -> tuple[Tensor, Tensor]:
    """The shares of n complete walks: `[m]` target · E + column, and `[m]` what that edge gets of the walk.

    `steps` `[n, L]` are the pairs of the walks. An adjacency entry that a walk uses twice is one factor; its share is split
    between the uses, so that the edge gets it once.
    """
    columns, entries = [], []
    for call in range(network.num_calls):
        geometry, pair = network.geometry(call), steps[:, call]
        column = _column_of_pair(network, call)[pair]
        entry = _entries(network, call)[pair]
        rooted = geometry.is_own[pair] & network.roots_alone(call)
        columns.append(column)
        entries.append(torch.where(rooted, -1, entry))  # a root step has no adjacency entry
    entry, column = torch.stack(entries, dim=1), torch.stack(columns, dim=1)  # [n, L] each
    uses = (entry.unsqueeze(2) == entry.unsqueeze(1)).sum(dim=2)  # [n, L]: how often the walk uses this entry
    factors = 2 * network.num_calls + ((entry >= 0) / uses).sum(dim=1).round()
    walk, place = (column >= 0).nonzero().unbind(1)
    return target[walk] * num_edges + column[walk, place], (score / factors)[walk] / uses[walk, place]

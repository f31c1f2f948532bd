"""A lowered model around one target, for many sets of silenced units at once: `[sets, rows, width]`, float64.

`SharedProgram` is the program of all targets: the operations of interval arithmetic (`trust/interval_program.py`), with
what the first call sends computed once. `SetProgram` is its part that one target needs. Rows are pairs as `program/levels.py`
orders them, the target first, so what a step needs is always the beginning of a table.

A slot is what one unit sends to one receiver in a call. Parallel columns of one unit are one slot, with the sum of their
coefficients: then r units take at most r slots from a receiver.
"""

from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.counterfactuals.binary_digits import digits
from edgewise.counterfactuals.edge_units import EdgeUnits
from edgewise.counterfactuals.goal import Goal
from edgewise.counterfactuals.set_steps import WIDEST, SetCall, SetMap, turned_call
from edgewise.program.intervals import Interval, TwoSided
from edgewise.program.ir import Program
from edgewise.program.levels import Levels
from edgewise.trust.interval_operations import Affine, Join, Messages, Rectify, Sum
from edgewise.trust.interval_program import NotCertifiable, Plan


class SharedProgram:
    """The program of a question in float64, as operations, and what its first calls send.

    Raises `NotCertifiable` with the reason where the model is not piecewise linear.
    """

    def __init__(self, program: Program, num_nodes: int) -> None:
        self.plan = plan = Plan.of(program, num_nodes)
        if not plan.is_affine:
            raise NotCertifiable("its messages are not affine in what they carry (attention, or a kink on each edge)")
        if plan.operations[-1].output != plan.output:
            raise NotCertifiable("its output is not its last operation")
        self.sent: dict[int, tuple[Tensor, Tensor, Tensor, Tensor]] = {}
        """By output: what every node sends and adds of itself, and the same with absolute values, `[N, out]` each."""
        self.digits: dict[int, int] = {}
        """By output: binary digits behind the point of what is sent and added, if it were not rounded."""
        for operation in plan.operations:
            if isinstance(operation, Messages) and operation.source in plan.constants:
                layer, x = operation.layer, plan.constants[operation.source]
                width = x.size(1) if layer.matrix is None else len(layer.matrix)
                if width > WIDEST:
                    raise NotCertifiable(f"call {operation.call} sends {width} numbers, at most {WIDEST} are followed")
                own = torch.tensor(layer.root).double() if isinstance(layer.root, float) else layer.root
                most = max(digits(layer.matrix) + digits(layer.loop, own), digits(own))
                self.digits[operation.output] = max(digits(x) + most, digits(layer.bias))
                self.sent[operation.output] = (
                    *_sent(x, layer.matrix, layer.loop, layer.root, layer.bias),
                    *_sent(*(_absolute(part) for part in (x, layer.matrix, layer.loop, layer.root, layer.bias))),
                )

    def around(self, levels: Levels, columns: Tensor, units: EdgeUnits) -> "SetProgram":
        """The part that one target needs; `columns` `[M]` are the user's columns of the edges of its levels."""
        return SetProgram(self, levels, units.unit_of(columns), units.count)


def _absolute(part: Any) -> Any:
    return abs(part) if isinstance(part, (Tensor, float)) else part


def _sent(x: Tensor, matrix: Any, loop: Any, root: Any, bias: Any) -> tuple[Tensor, Tensor]:
    """What nodes send, and their own terms with the bias."""
    sent = x if matrix is None else functional.linear(x, matrix)
    rest = torch.zeros_like(sent)
    if loop is not None:
        rest = rest + sent * loop.view(-1, 1)
    if isinstance(root, Tensor):
        rest = rest + functional.linear(x, root)
    elif root is not None:
        rest = rest + sent * root
    return sent, rest if bias is None else rest + bias


class SetProgram:
    """The program around one target, with U units; `steps` in order, `output` is the value whose row 0 is the target's."""

    def __init__(self, shared: SharedProgram, levels: Levels, unit: Tensor, num_units: int) -> None:
        self.shared, self.levels, self.num_units = shared, levels, num_units
        self._unit = unit
        plan = shared.plan
        self.constants = {
            value: rows.index_select(0, levels.node)
            for value, rows in plan.constants.items()
            if any(value in op.reads and not isinstance(op, Messages) for op in plan.operations)
        }
        self.rows = dict.fromkeys(plan.constants, len(levels.node))
        depth = dict.fromkeys(plan.constants, 0)
        self.steps: list[SetCall | SetMap] = []
        for operation in plan.operations:
            calls = max(depth[value] for value in operation.reads) + isinstance(operation, Messages)
            depth[operation.output], self.rows[operation.output] = calls, levels.pairs_after(calls)
            if isinstance(operation, Messages):
                self.steps.append(self._call(operation))
            elif isinstance(operation, (Affine, Rectify, Sum, Join)):
                self.steps.append(self._row_map(operation))
            else:
                raise NotCertifiable(f"{type(operation).__name__} is not followed")
        self.output = plan.output

    def _call(self, operation: Messages) -> SetCall:
        levels, layer, call = self.levels, operation.layer, operation.call
        rows, edges = levels.pairs_after(call + 1), levels.edges_of(call)
        given = operation.output in self.shared.sent
        tail = levels.sender[:edges] if given else levels.tail[:edges]
        head, unit = levels.head[:edges], self._unit[:edges]
        number = layer.coefficients(levels.edge_id[:edges], torch.ones(0, dtype=torch.double))
        slots, place = torch.stack([head, unit, tail]).unique(dim=1, return_inverse=True)
        zeros = torch.zeros(slots.size(1), dtype=torch.double)
        coefficient, size = (zeros.index_add(0, place, part) for part in (number, number.abs()))
        scale = None if layer.loop is None else layer.loop.index_select(0, levels.node[:rows]).view(-1, 1)
        if isinstance(layer.root, float):
            scale = torch.full((rows, 1), layer.root, dtype=torch.double) if scale is None else scale + layer.root
        root = layer.root if isinstance(layer.root, Tensor) else None
        most = int(torch.bincount(slots[0]).max()) if slots.size(1) else 0
        inside = sum(0 if part is None else part.size(1) for part in (layer.matrix, root))
        about: dict[str, Any] = {"terms": edges - slots.size(1) + most + inside + 4}
        if given:
            sent, rest, large, larger = self.shared.sent[operation.output]
            about["digits"] = self.shared.digits[operation.output]
            about["sent"] = sent[slots[2]] * coefficient.view(-1, 1)
            about["rest"] = rest[levels.node[:rows]]
            about["magnitude"] = (large[slots[2]] * size.view(-1, 1), larger[levels.node[:rows]])
        return SetCall(
            operation.source, operation.output, rows, slots[0], slots[2], slots[1], coefficient, size, layer.matrix, scale,
            root, layer.bias, **about,
        )  # fmt: skip

    def _row_map(self, operation: Affine | Rectify | Sum | Join) -> SetMap:
        rows = self.rows[operation.output]
        if not isinstance(operation, Affine):
            return SetMap(operation, rows)
        matrix, scale = None, operation.scale
        if operation.matrix is not None:
            both = operation.matrix.both  # positive and negative parts, side by side
            inside, outside = len(both) // 2, both.size(1) // 2
            matrix = (both[:inside, :outside] + both[:inside, outside:]).t()
        if scale is not None and scale.dim() == 2:
            scale = scale.index_select(0, self.levels.node[:rows])
        return SetMap(operation, rows, matrix, scale, None if operation.shift is None else operation.shift.lo)

    def towards(self, goal: Goal) -> "SetProgram":
        """The same program with the margins of a goal as its output: the directions go into the last matrix.

        Bounds of a difference are tighter than the difference of bounds.
        """
        last, other = self.steps[-1], copy(self)
        steps: list[SetCall | SetMap]
        if isinstance(last, SetCall):
            steps = [turned_call(last, goal)]
        elif last.matrix is not None and last.scale is None:
            shift = goal.offset if last.shift is None else last.shift @ goal.directions.t() + goal.offset
            steps = [replace(last, matrix=goal.directions @ last.matrix, shift=shift)]
        else:
            turn = Affine(last.output, last.output + 1, TwoSided.of(goal.directions), None, Interval.point(goal.offset))
            steps = [last, SetMap(turn, last.rows, goal.directions, None, goal.offset)]
            other.rows = {**self.rows, last.output + 1: last.rows}
        other.steps, other.output = [*self.steps[:-1], *steps], steps[-1].output
        return other

    # --- numbers ------------------------------------------------------------------------------------------------------

    def table(self, values: dict[int, Tensor], value: int, rows: int) -> Tensor:
        """The first rows of a value, `[…, rows, width]`; a constant is the same for all sets."""
        found = values[value] if value in values else self.constants[value]
        return found[..., :rows, :]

    def outputs(self, silenced: Tensor) -> Tensor:
        """The target's output without the silenced units: bool `[sets, U]` to `[sets, columns]`."""
        on = (~silenced).double()
        values: dict[int, Tensor] = {}
        for step in self.steps:
            if isinstance(step, SetCall):
                values[step.output] = self._received(step, values, on[:, step.unit])
            else:
                values[step.output] = step.numbers([self.table(values, value, step.rows) for value in step.reads])
        return values[self.output][:, 0].expand(len(silenced), -1)

    def _received(self, step: SetCall, values: dict[int, Tensor], weight: Tensor) -> Tensor:
        """What a call gives, `[sets, rows, out]`, with the weights `[sets, S]` of its slots."""
        if step.sent is not None and step.rest is not None:
            return step.received(step.sent.unsqueeze(0), weight, of_slots=True) + step.rest
        table = values[step.source]
        total = step.received(table, weight * step.coefficient)
        own = table[:, : step.rows]
        found = step.send(total if step.own_scale is None else total + step.own_scale * own)
        if step.root is not None:
            found = found + own @ step.root.t()
        return found if step.bias is None else found + step.bias


def sets_at_once(program: "SetProgram", numbers: int = 2**22) -> int:
    """How many sets fit a pass whose largest tables have about so many numbers."""
    widest = max(step.widest for step in program.steps if isinstance(step, SetCall))
    return max(1, min(4096, numbers // max(widest, 1)))

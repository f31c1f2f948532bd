"""Bounds of sets of edges: never above what any of the sets gives, and sharp where they should be."""

from fractions import Fraction
from itertools import combinations

import pytest
import torch

from checks import one_in
from edgewise.counterfactuals.goal import Goal
from edgewise.counterfactuals.linear_bounds import linear_bound, lines, margins_start
from edgewise.counterfactuals.rounding_bound import RoundingBound, margin_errors
from edgewise.counterfactuals.set_intervals import Boxes, interval_bounds
from edgewise.score import Score
from edgewise.trust.interval_operations import Rectify
from set_programs import NETWORKS, around


@pytest.mark.parametrize("name", NETWORKS)
def test_a_pass_over_many_sets_gives_what_the_engine_of_explanations_gives(name):
    program, units, question = around(name, 1)
    sets = torch.rand(9, units.count) < torch.linspace(0, 1, 9).view(-1, 1)
    score = Score.of_block(question, torch.zeros(9, dtype=torch.long))
    weight = (~sets[score.owner, units.unit_of(score.edge_id)]).double()
    assert torch.allclose(program.outputs(sets), score.output(weight.expand(score.num_layers, -1)), atol=1e-12)


@pytest.mark.parametrize("seed", one_in(2, range(4)))
@pytest.mark.parametrize("name", NETWORKS)
def test_no_bound_is_above_what_a_set_of_its_box_gives(name, seed):
    program, units, _ = around(name, seed)
    goal = Goal.other_class(seed % 3, 3)
    bound, margins = RoundingBound.of(program), program.towards(goal)
    for budget in (0, 1, 2):
        silenced = torch.rand(4, units.count) < 0.15
        boxes = Boxes(silenced, (torch.rand(4, units.count) < 0.2) & ~silenced, budget)
        bounds = interval_bounds(margins, boxes, bound)
        interval = bounds[margins.output][0][:, 0]
        linear = linear_bound(margins, bounds, boxes, margins_start(margins, 4, 2)).least
        worst = torch.stack([_worst(program, goal, boxes, box) for box in range(4)])
        slack = bound.of_linear_bounds(goal)
        assert (interval - slack <= worst).all()
        assert (linear - slack <= worst).all()
        if budget == 0:
            assert torch.allclose(interval, worst, atol=1e-9)
            assert torch.allclose(linear, worst, atol=1e-9)


def _worst(program, goal, boxes, box):
    """The smallest margins of any set of a box, by trying all of them."""
    free = boxes.free[box].nonzero().view(-1).tolist()
    chosen = [some for size in range(boxes.budget + 1) for some in combinations(free, size)]
    sets = boxes.silenced[box].repeat(len(chosen), 1)
    for row, some in enumerate(chosen):
        sets[row, list(some)] = True
    return goal.margins(program.outputs(sets)).amin(dim=0)


@pytest.mark.parametrize("slopes", [(0.0, 1.0), (0.2, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_lines_enclose_a_function_with_a_kink(slopes):
    kink = Rectify(0, 1, *(torch.tensor(slope).double() for slope in slopes))
    low = torch.tensor([-3.0, -1.0, -2.0, 0.5, -4.0, 0.0]).double()
    high = torch.tensor([1.0, 5.0, 2.0, 2.0, -1.0, 0.0]).double()
    under, over = lines(kink, low, high)
    for share in torch.linspace(0, 1, 21):
        x = low + share * (high - low)
        value = x * torch.where(x > 0, kink.above, kink.below)
        assert (under[0] * x + under[1] <= value + 1e-12).all()
        assert (over[0] * x + over[1] >= value - 1e-12).all()


# Rounding #############################################################################################################


def _exact(program, silenced):
    """The program in exact fractions, by its formulas, for one set."""
    values = {}
    for step in program.steps:
        if hasattr(step, "head"):
            values[step.output] = _exact_call(step, values, silenced)
        else:
            rows = values[step.reads[0]][: step.rows]
            values[step.output] = [[max(number, Fraction(0)) for number in row] for row in rows]
    return values[program.output][0]


def _exact_call(step, values, silenced):
    numbers = lambda tensor: [[Fraction(x) for x in row] for row in tensor.tolist()]  # noqa: E731
    if step.sent is not None:
        total = numbers(step.rest)
        for slot, row in enumerate(numbers(step.sent)):
            if not silenced[step.unit[slot]]:
                total[step.head[slot]] = [a + b for a, b in zip(total[step.head[slot]], row, strict=True)]
        return total
    table, matrix = values[step.source], numbers(step.matrix)
    total = [[Fraction(x) for x in step.bias.tolist()] for _ in range(step.rows)]
    for row in range(step.rows):
        own = [Fraction(float(step.own_scale[row])) * x for x in table[row]]
        for slot in (step.head == row).nonzero().view(-1).tolist():
            if not silenced[step.unit[slot]]:
                factor = Fraction(float(step.coefficient[slot]))
                own = [a + factor * b for a, b in zip(own, table[step.tail[slot]], strict=True)]
        sums = [sum(w * x for w, x in zip(line, own, strict=True)) for line in matrix]
        total[row] = [a + b for a, b in zip(total[row], sums, strict=True)]
    return total


def test_numbers_are_within_the_rounding_bound_of_exact_fractions():
    program, units, _ = around("GCN", 2, nodes=8, edges=14)
    goal, bound = Goal.other_class(0, 3), RoundingBound.of(program)
    sets = torch.rand(5, units.count) < 0.3
    margins, errors = margin_errors(program, sets, goal)
    for row, silenced in enumerate(sets.tolist()):
        exact = _exact(program, silenced)
        for place, other in enumerate((1, 2)):
            off = abs(Fraction(float(margins[row, place])) - (exact[0] - exact[other]))
            assert off <= Fraction(float(errors[row, place])) <= Fraction(float(bound.of_margins(goal)[place]))


def test_margins_near_zero_are_hidden_and_exact_zeros_are_not():
    goal = Goal.other_class(0, 2)
    margins = torch.tensor([[1e-20], [0.0], [-1e-20], [-1.0], [1.0]]).double()
    assert goal.verdict(margins, torch.tensor([1e-15]).double()).tolist() == [0, 0, 0, 1, -1]
    assert goal.verdict(margins, torch.tensor([0.0]).double()).tolist() == [-1, -1, 1, 1, -1]

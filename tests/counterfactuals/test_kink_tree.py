"""Trees that are cut at kinks, too, against all sets of a small graph; bounds with prices against all sets of a box."""

from dataclasses import replace

import pytest
import torch

from checks import one_in
from edgewise.counterfactuals.allowance import Allowance
from edgewise.counterfactuals.goal import Goal
from edgewise.counterfactuals.linear_bounds import linear_bound, margins_start
from edgewise.counterfactuals.relaxation_choice import Prices, usual_relaxation
from edgewise.counterfactuals.set_answers import LoweredAnswers
from edgewise.counterfactuals.set_intervals import Boxes, interval_bounds
from edgewise.counterfactuals.set_steps import SetMap
from edgewise.counterfactuals.set_tree import SetTree
from edgewise.trust.interval_operations import Rectify
from set_programs import NETWORKS, around


def _goals(answers, every):
    """The margins of the predicted class one by one, or the class that is the furthest away."""
    row = answers.outputs(torch.zeros(1, answers.num_units, dtype=torch.bool))[0]
    return [Goal.this_class(int(row.argmin()), 3)] if every else Goal.other_class(int(row.argmax()), 3).parts()


def _all_sets(units):
    return ((torch.arange(2**units).view(-1, 1) >> torch.arange(units)) & 1).bool()


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("seed", one_in(6, range(6)))
@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_a_set_is_found_exactly_where_there_is_one(name, seed, every, monkeypatch):
    monkeypatch.setattr("edgewise.counterfactuals.kink_tree._ROOT_STEPS", 3)  # poor bounds at the root: more is cut
    monkeypatch.setattr("edgewise.counterfactuals.kink_tree._STEPS", 2)
    program, units, _ = around(name, seed, nodes=8, edges=11)
    answers = LoweredAnswers(program, units)
    sets = _all_sets(units.count)
    for goal in _goals(answers, every):
        changed = sets[goal.verdict(goal.margins(answers.outputs(sets)), answers.slack(goal)) == 1]
        smallest = int(changed.sum(dim=1).min()) if len(changed) else None
        for size in {units.count, *([3] if smallest is None else [smallest, max(smallest - 1, 1)])}:
            found = SetTree(answers, goal, Allowance()).at_kinks().search(size)
            assert (found is not None) == (smallest is not None and smallest <= size)
            if found is not None:
                assert int(found.sum()) <= size
                assert (changed == found).all(dim=1).any()


@pytest.mark.parametrize("seed", one_in(2, range(4)))
@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_no_bound_with_prices_is_above_what_a_set_gives_whose_numbers_are_on_these_sides(name, seed):
    program, units, _ = around(name, seed, nodes=8, edges=11)
    answers = LoweredAnswers(program, units)
    goal = _goals(answers, every=False)[seed % 2]
    margins, root = program.towards(goal), Boxes.everything(units.count, units.count)
    bounds = interval_bounds(margins, root, answers.bound)
    numbers = _numbers(program, _all_sets(units.count))
    true = goal.margins(answers.outputs(_all_sets(units.count)))[:, 0]
    for draw in range(8):
        torch.manual_seed(draw)
        cut, prices, here = dict(bounds), {}, torch.ones(len(true), dtype=torch.bool)
        for value, rows in numbers.items():
            low, high = (end.clone() for end in bounds[value])
            side = torch.randint(-4, 5, low.shape).clamp(-1, 1) * (torch.rand(low.shape) < 0.2)
            cut[value] = torch.where(side > 0, low.clamp(min=0), low), torch.where(side < 0, high.clamp(max=0), high)
            prices[value] = (side * torch.rand(low.shape).double() * 3).unsqueeze(1)
            here &= (rows * side >= 0).flatten(1).all(dim=1)
        way = usual_relaxation(margins, cut).each(torch.rand_like)
        way = replace(way, prices=prices)
        least = linear_bound(margins, cut, root, margins_start(margins, 1, 1), relaxation=way).least
        least = least - Prices(answers.bound, {}).error(way) - answers.bound.of_linear_bounds(goal)
        if bool(here.any()):
            assert float(least) <= float(true[here].min())


def _numbers(program, sets):
    """What kinks read, by value, `[sets, rows, width]`: the program, stopped there."""
    found = {}
    for step in program.steps:
        if isinstance(step, SetMap) and isinstance(step.operation, Rectify):
            value = step.operation.source
            found[value] = _value(program, sets, value)
    return found


def _value(program, sets, value):
    values, on = {}, (~sets).double()
    for step in program.steps:
        if isinstance(step, SetMap):
            values[step.output] = step.numbers([program.table(values, one, step.rows) for one in step.reads])
        else:
            values[step.output] = program._received(step, values, on[:, step.unit])
    return values[value].expand(len(sets), -1, -1)

"""Sets of ranks: against scipy, against Holm by hand, and how often they hold."""

import math

import pytest
import torch

from edgewise.board.rank_sets import RankSet, holm, p_value, rank_sets
from edgewise.board.summary import target_interval
from edgewise.student_intervals import interval_of_mean


def test_p_values_are_those_of_a_one_sided_paired_t_test():
    stats = pytest.importorskip("scipy.stats")
    for seed in range(5):
        a, b = torch.randn(2, 6 + seed, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
        wanted = stats.ttest_rel(a.numpy(), b.numpy(), alternative="greater").pvalue
        assert p_value(a - b) == pytest.approx(wanted, abs=1e-10)


def test_differences_that_do_not_vary_claim_no_more_than_a_test_of_signs():
    assert p_value(torch.full((5,), 0.25)) == 0.5**5
    assert p_value(torch.zeros(5)) == 1.0
    assert p_value(torch.full((5,), -0.25)) == 1.0
    assert p_value(torch.tensor([0.5, math.nan, 0.5])) == 1.0  # two networks are not enough


def test_holm_stops_at_the_first_test_that_does_not_reach_its_level():
    chances = [0.01, 0.013, 0.02, 0.04]
    assert holm(chances, 0.05) == [True, True, True, True]
    assert holm([0.01, 0.018, 0.02, 0.04], 0.05) == [True, False, False, False]  # 0.018 > 0.05/3, and nothing after it
    assert holm([], 0.05) == []


def test_methods_far_apart_have_one_rank_each_and_equal_ones_share_theirs():
    noise = 0.01 * torch.randn(4, 12, generator=torch.Generator().manual_seed(0))
    means = torch.tensor([0.2, 0.9, 0.5, 0.5]).view(-1, 1) + noise
    assert rank_sets(means.unsqueeze(2)) == [RankSet(4, 4), RankSet(1, 1), RankSet(2, 3), RankSet(2, 3)]


def test_methods_are_compared_on_the_targets_that_both_have_a_number_for():
    easy = torch.rand(6, 1, generator=torch.Generator().manual_seed(0), dtype=torch.double) / 100 + 0.9
    hard = easy - 0.8
    everywhere = torch.cat([easy, hard], dim=1)
    only_easy = torch.cat(
        [easy - 0.05 - easy / 100, torch.full_like(hard, math.nan)], dim=1
    )  # worse wherever it has a number
    assert rank_sets(torch.stack([everywhere, only_easy])) == [RankSet(1, 1), RankSet(2, 2)]


def test_all_sets_hold_together_at_least_as_often_as_they_say():
    """Six methods, of which three are equal; networks differ much more than methods do, which pairs take out."""
    truth, held = torch.tensor([0.5, 0.5, 0.5, 0.45, 0.4, 0.4], dtype=torch.double), 0
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        noise = 0.03 * torch.randn(6, 8, generator=generator, dtype=torch.double)
        shared = 0.5 * torch.randn(8, generator=generator, dtype=torch.double)
        found = rank_sets((truth.view(-1, 1) + shared + noise).unsqueeze(2))
        above = [(truth > one).sum() + 1 for one in truth]
        below = [(truth >= one).sum() for one in truth]
        held += all(s.best <= low and high <= s.worst for s, low, high in zip(found, above, below, strict=True))
    assert held >= 95  # equal methods share their places: a set must hold all of them


def test_the_interval_over_targets_takes_networks_as_given():
    generator = torch.Generator().manual_seed(1)
    one = torch.randn(9, generator=generator, dtype=torch.double)
    assert target_interval([one], 0.95) == pytest.approx(interval_of_mean(one, 0.95))
    far = [one, one + 10]  # networks differ by 10, targets within them do not
    low, high = target_interval(far, 0.95)
    assert high - low < interval_of_mean(one, 0.95)[1] - interval_of_mean(one, 0.95)[0]
    assert (low + high) / 2 == pytest.approx(float(one.mean()) + 5)
    assert math.isnan(target_interval([one[:1]], 0.95)[0])

"""Sign certificates of piecewise linear functions in every spelling: the same proof, and never a false one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import edgewise as ew
import spellings
import zoo
from edgewise.program.bends import Bend, bends
from edgewise.program.intervals import Interval
from edgewise.trust import certify
from edgewise.trust.flips import sampled_gradients
from edgewise.trust.interval_operations import Rectify
from spellings import PAIRS, RECTIFIERS

PARTS = ("keeps", "flips", "vanishes")
GRID = tuple(torch.linspace(0, 1, 200, dtype=torch.double).tolist())
STEEP = {
    "steep leaky": lambda x: functional.leaky_relu(x, 1.5),
    "negative leaky": lambda x: functional.leaky_relu(x, -0.5),
    "half of x plus its size": lambda x: 0.5 * (x + x.abs()),
    "prelu of many signs": lambda x: functional.prelu(x, torch.linspace(-1, 2, x.size(1), dtype=x.dtype)),
    "larger of two values": lambda x: torch.maximum(x, x @ torch.eye(x.size(1), dtype=x.dtype).flip(0)),
    "a clamp by columns": lambda x: x.clamp(torch.linspace(-1, 0, x.size(1), dtype=x.dtype), x.new_full((), 0.5)),
    "a clamp by nodes": lambda x: torch.maximum(x, torch.linspace(-1, 1, len(x), dtype=x.dtype).view(-1, 1)),
    "one minus": lambda x: 1 - functional.relu(x),
    "a norm": lambda x: functional.relu(
        functional.batch_norm(x, x.new_full((x.size(1),), 0.1), x.new_full((x.size(1),), 2.0))
    ),
}
EVERY = {**RECTIFIERS, **STEEP, **{f"{name}, {i}": pair[i] for name, pair in PAIRS.items() for i in (0, 1)}}


def graph(seed=1):
    return zoo.graph(zoo.random_edges(7, 16, seed), 7, seed=seed)


def same_certificate(one, other, level="input", **options):
    found, expected = (certify(spellings.build(act, **options), graph(), level=level) for act in (one, other))
    assert expected.reason is None
    assert found.reason is None
    assert found.keeps.any()
    for part in PARTS:
        assert torch.equal(getattr(found, part), getattr(expected, part))


@pytest.mark.parametrize("name", sorted(set(RECTIFIERS)))
def test_every_spelling_of_a_relu_has_the_same_certificate(name):
    same_certificate(RECTIFIERS[name], functional.relu)


@pytest.mark.parametrize("name", ["clamp", "threshold", "maximum", "half, doubled"])
@pytest.mark.parametrize(("kind", "level"), [("gin", "input"), ("sage", "layer")])
def test_spellings_are_the_same_in_other_layers_and_at_layer_level(name, kind, level):
    same_certificate(RECTIFIERS[name], functional.relu, level, kind=kind)


@pytest.mark.parametrize("name", sorted(set(PAIRS) - {"leaky and maximum"}))
def test_two_spellings_of_one_function_have_the_same_certificate(name):
    same_certificate(*PAIRS[name])


@pytest.mark.parametrize("name", sorted(EVERY))
@settings(max_examples=4)
@given(seed=st.integers(0, 10**6))
def test_no_certificate_of_any_spelling_is_contradicted_by_sampled_weights(name, seed):
    model, data = spellings.build(EVERY[name], seed=seed, kind="sage" if seed % 2 else "gcn"), graph(seed)
    found = certify(model, data)
    assert found.reason is None
    _, lowest, highest = sampled_gradients(ew.Score(model, data)._question, "input", GRID, 2**29, None)[1]
    assert not (found.keeps & (lowest < 0) & (highest > 0)).any()
    assert not (found.vanishes & ((lowest != 0) | (highest != 0))).any()


@given(
    below=st.floats(-2, 2), above=st.floats(-2, 2), low=st.floats(-3, 3), width=st.floats(0, 3), part=st.floats(0, 1)
)
def test_the_bounds_of_a_kink_hold_everywhere_between_the_ends(below, above, low, width, part):
    rows = Interval(*(torch.tensor([[end]], dtype=torch.double) for end in (low, low + width)))
    rectify = Rectify(0, 1, *(torch.tensor(slope, dtype=torch.double) for slope in (below, above)))
    x = min(low + part * width, low + width)
    true = x * (above if x > 0 else below)
    found = rectify(rows)
    assert found.lo.item() <= true <= found.hi.item()
    least, most = rectify.derivative(*rectify.sides(rows))
    assert least.item() <= (above if x > 0 else below) <= most.item()


@given(
    low=st.floats(-3, 3),
    high=st.floats(0, 3),
    a=st.floats(-2, 2),
    b=st.floats(0, 2),
    p=st.floats(0, 1),
    q=st.floats(0, 1),
)
def test_a_product_with_something_between_two_numbers_of_any_sign_is_bounded(low, high, a, b, p, q):
    rows = Interval(*(torch.tensor([[end]], dtype=torch.double) for end in (low, low + high)))
    ends = [torch.tensor(end, dtype=torch.double) for end in (a, a + b)]
    found = rows.between(*ends)
    true = min(low + p * high, low + high) * min(a + q * b, a + b)
    assert found.lo.item() <= true <= found.hi.item()


def spelled_out(x, found):
    """A chain of kinks, written from its definition."""
    for bend in found:
        x = bend.at + (x - bend.at) * torch.where(x > bend.at, bend.above, bend.below)
    return x


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (functional.relu, (), {}),
        (functional.leaky_relu, (0.3,), {}),
        (functional.leaky_relu, (), {"negative_slope": 0.3}),
        (functional.rrelu, (), {}),
        (functional.relu6, (), {}),
        (functional.hardtanh, (), {}),
        (functional.hardtanh, (-2.0, 0.5), {}),
        (functional.threshold, (0.5, 0.5), {}),
        (torch.clamp, (-1,), {}),
        (torch.clamp, (), {"max": 1}),
        (torch.clamp, (1, -1), {}),  # torch takes the upper bound where the two are the wrong way round
        (torch.Tensor.clamp_max, (0.5,), {}),
        (torch.maximum, (torch.tensor(0.3),), {}),
        (torch.minimum, (torch.tensor(0.3),), {}),
        (torch.abs, (), {}),
        (functional.prelu, (torch.tensor([0.4]),), {}),
    ],
)
def test_the_table_of_kinks_says_what_torch_does(function, args, kwargs):
    x = torch.linspace(-8, 8, 129)
    source, found = bends(function, (x, *args), kwargs)
    assert source is x
    torch.testing.assert_close(spelled_out(x, found), function(x, *args, **kwargs))
    for bend in found:
        if bend.kink is not None and not isinstance(bend.at, torch.Tensor) and len(found) == 1:
            at = torch.tensor([float(bend.at)], requires_grad=True)
            (slope,) = torch.autograd.grad(function(at, *args, **kwargs).sum(), at)
            assert slope.item() == pytest.approx(float(bend.kink))


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (lambda x: functional.threshold(x, 0, 1), "threshold has a jump"),
        (lambda x: x * x, "mul of two values"),
        (lambda x: x / (1 + x.abs()), "truediv of two values|div of two values"),
        (lambda x: torch.tanh(x), "tanh is not known to be piecewise linear"),
        (lambda x: torch.div(x, 0.5, rounding_mode="floor"), "div with rounding_mode"),
        (lambda x: x + x[:, :1], None),
    ],
)
def test_what_is_not_piecewise_linear_is_refused_with_its_name(act, reason):
    found = certify(spellings.build(act), graph())
    assert found.reason
    assert not (found.keeps | found.flips | found.vanishes).any()
    if reason:
        with pytest.raises(AssertionError, match=reason):
            raise AssertionError(found.reason)


class Widened(nn.Module):
    """A column added to each of several columns."""

    def __init__(self):
        super().__init__()
        self.inner = spellings.Spelled(functional.relu)
        self.one = nn.Linear(spellings.CLASSES, 1)

    def forward(self, x, edge_index):
        rows = self.inner(x, edge_index)
        return rows + self.one(rows)


def test_a_row_that_is_repeated_in_a_sum_is_refused_and_not_guessed():
    with torch.random.fork_rng():
        model = zoo.randomise(Widened(), 0)
    assert "repeated" in certify(model, graph()).reason


def test_a_bend_says_on_which_side_its_kink_is():
    assert Bend(0, 1, kink=0).is_off_at_kink
    assert Bend(0, 1, kink=1).is_on_at_kink
    assert not Bend(-1, 1, kink=0).is_off_at_kink

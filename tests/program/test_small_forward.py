"""The forward pass in numpy at several points of one small neighbourhood, against the interpreter that it stands for."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import edgewise as ew
from chains import MixedChain, chain_data
from checks import assert_close

POINTS = 3


@given(
    st.lists(st.sampled_from(["gcn", "sage", "sum", "graph"]), min_size=1, max_size=3),
    st.sampled_from([nn.ReLU(), nn.Tanh(), nn.LeakyReLU(0.2), nn.Identity(), nn.PReLU()]),
    st.integers(0, 10**6),
    st.integers(0, 7),
)
def test_every_point_is_what_the_interpreter_gives_there(names, between, seed, node):
    data = chain_data(seed)
    engine = ew.Question(MixedChain(names, between).double().eval(), data, node)._posed.engine(torch.tensor([0]))
    sizes = (engine.edge_id.numel(), engine.self_node.numel())
    drawn = torch.Generator().manual_seed(seed)
    weights = [torch.rand(POINTS, len(names), n, generator=drawn, dtype=torch.double) for n in sizes]
    with torch.no_grad():
        found = engine.double_outputs(*weights)
        usual = torch.cat([engine.output(edge, own) for edge, own in zip(*weights, strict=True)])
    assert_close(found, usual, 1e-9)


def test_several_targets_and_other_programs_are_left_to_the_interpreter():
    data = chain_data(0)
    several = ew.Question(MixedChain(["gcn"], nn.ReLU()).double().eval(), data, [0, 1])._posed.engine(torch.arange(2))
    attention = ew.Question(MixedChain(["gat"], nn.ReLU()).double().eval(), data, 0)._posed.engine(torch.tensor([0]))
    for engine in (several, attention):
        points = [torch.ones(1, 1, n, dtype=torch.double) for n in (engine.edge_id.numel(), engine.self_node.numel())]
        assert engine.double_outputs(*points) is None

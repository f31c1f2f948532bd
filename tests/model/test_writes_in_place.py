"""A model that writes into its own rows is explained as if it made new ones, or refused in plain words."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

import edgewise as ew
from edgewise.errors import ModelError


class Net(nn.Module):
    def __init__(self, step):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.step = GCNConv(4, 4), GCNConv(4, 3), step

    def forward(self, x, edge_index):
        return self.second(self.step(self.first(x, edge_index) * 1.5), edge_index)


def graph():
    generator = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(12, 4, generator=generator), edge_index=torch.randint(0, 12, (2, 40), generator=generator)
    )


def masked(h):
    h[h > 0.2] = 0.2
    return h


def rows_added(h):
    h[h[:, 0] > 0] += 1
    return h


def a_column(h):
    h[:, 0] = 0
    return h


def a_view(h):
    h[:, 1:].clamp_(max=0.1)
    return h


def masked_in_a_view(h):
    h[:, 0][h[:, 0] > 0.1] = 0.1
    return h


def everything(h):
    h[:] = h.tanh()
    return h


WRITES = {
    "a mask": (masked, lambda h: torch.where(h > 0.2, torch.full_like(h, 0.2), h)),
    "a mask by a function": (lambda h: h.masked_fill_(h > 0.2, 0.2), lambda h: h.masked_fill(h > 0.2, 0.2)),
    "some rows": (rows_added, lambda h: torch.where(h[:, :1] > 0, h + 1, h)),
    "a column": (a_column, lambda h: torch.cat([0 * h[:, :1], h[:, 1:]], dim=1)),
    "a view": (a_view, lambda h: torch.cat([h[:, :1], h[:, 1:].clamp(max=0.1)], dim=1)),
    "a mask in a view": (
        masked_in_a_view,
        lambda h: torch.cat([h[:, :1].clamp(max=0.1), h[:, 1:]], dim=1),
    ),
    "everything": (everything, torch.tanh),
}


@pytest.mark.parametrize("method", ["gradient", "occlusion"])
@pytest.mark.parametrize("title", WRITES)
def test_writing_in_place_is_explained_as_making_new_rows(title, method):
    found, expected = (ew.explain(Net(step).eval(), graph(), index=2, method=method) for step in WRITES[title])
    assert expected.scores.any()
    torch.testing.assert_close(found.scores, expected.scores, rtol=1e-4, atol=1e-6)


def doubled_into_itself(h):
    if not h.requires_grad:
        torch.mul(h, 2, out=h)
        return h
    return 2 * h


def into_another(h):
    out = torch.empty_like(h)
    torch.clamp(h, max=0.2, out=out)
    return out


def test_writing_with_out_is_explained_as_making_new_rows():
    steps = ((doubled_into_itself, lambda h: 2 * h), (into_another, lambda h: h.clamp(max=0.2)))
    for written, plain in steps:
        for method in ("gradient", "occlusion"):
            found, expected = (
                ew.explain(Net(step).eval(), graph(), index=2, method=method) for step in (written, plain)
            )
            assert expected.scores.any()
            torch.testing.assert_close(found.scores, expected.scores, rtol=1e-4, atol=1e-6)


def test_a_model_that_writes_with_out_and_is_run_itself_is_told_so():
    model = Net(into_another)
    model.second = SAGEConv(4, 3, aggr="max")
    with pytest.raises(ModelError, match="writes with out="):
        ew.explain(model.eval(), graph(), index=2)
    assert ew.explain(model, graph(), index=2, method="occlusion").scores.any()


def test_walks_of_what_is_written_through_a_view_before_the_layers_are_refused():
    class Encoded(Net):
        def forward(self, x, edge_index):
            return self.second(self.first(self.step(x * 1.5), edge_index), edge_index)

    with pytest.raises(ModelError, match="through a view"):
        ew.explain(Encoded(a_view).eval(), graph(), index=2, method="lrp")
    assert ew.explain(Encoded(a_view).eval(), graph(), index=2).scores.any()


def test_a_model_whose_writes_spoil_its_own_gradient_is_told_so():
    def spoiled(h):
        h[:, 0] *= h[:, 1]
        return h

    with pytest.raises(ModelError, match=r"writes in place .* h = h\.clone\(\)"):
        ew.explain(Net(spoiled).eval(), graph(), index=2)
    assert ew.explain(Net(spoiled).eval(), graph(), index=2, method="occlusion").scores.any()

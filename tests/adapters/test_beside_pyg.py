"""What the README says of PyG's explainers, run beside ours."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer
from torch_geometric.nn import GAT, GCN
from torch_geometric.utils import add_self_loops, coalesce

import edgewise as ew

CONFIG = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
ENDS = torch.tensor([[0, 1, 2, 3, 4, 5, 2], [1, 2, 3, 4, 5, 0, 5]])


@pytest.fixture
def graph():
    torch.manual_seed(0)
    return Data(x=torch.randn(6, 4), edge_index=ENDS)


def by_pyg(model, algorithm, graph, index=3, **extras):
    explainer = Explainer(model, algorithm, "model", CONFIG, edge_mask_type="object")
    return explainer(graph.x, graph.edge_index, index=index, **extras).edge_mask


def gradients():
    return CaptumExplainer("Saliency", abs=False)


def test_gnn_explainer_leaves_masks_in_the_model_and_ours_does_not(graph):
    model = GCN(4, 8, 2, 3).eval()
    before = list(model.convs[0]._parameters)
    ew.explain(model, graph, 3, method="gnn_explainer", epochs=3)
    assert list(model.convs[0]._parameters) == before
    by_pyg(model, GNNExplainer(epochs=3), graph)
    assert list(model.convs[0]._parameters) == [*before, "_edge_mask"]
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        by_pyg(model, gradients(), graph)
    assert (ew.explain(model, graph, 3).scores != 0).any()


def test_masks_are_misaligned_with_loops_that_are_not_last_and_ours_are_not(graph):
    """The truth is a central difference: the weight of one message, in a model that weighs its messages itself."""
    model = GCN(4, 8, 2, 3).double().eval()
    graph.x = graph.x.double()
    with_loops = coalesce(add_self_loops(ENDS, num_nodes=6)[0])  # a loop on every node, sorted among the other edges
    looped = Data(x=graph.x, edge_index=with_loops)
    ours, theirs = ew.explain(model, looped, 3).scores, by_pyg(model, gradients(), looped).double()
    score = ew.Score(model, looped, index=[3])
    step = 1e-6
    truth = torch.zeros(looped.num_edges, dtype=torch.double)
    for place, edge in enumerate(score.edge_id.tolist()):
        change = torch.zeros_like(score.ones())
        change[:, place] = step
        truth[edge] += (score(score.ones() + change) - score(score.ones() - change)).item() / (2 * step)
    torch.testing.assert_close(ours, truth, rtol=1e-5, atol=1e-7)
    assert torch.cosine_similarity(theirs, truth, dim=0) < 0.9
    plain = by_pyg(model, gradients(), graph).double()
    torch.testing.assert_close(
        ew.explain(model, graph, 3).scores, plain, rtol=1e-5, atol=1e-6
    )  # without loops both agree


def test_edge_attributes_are_passed_by_position_and_never_reach_the_layer(graph):
    model = GAT(4, 8, 2, 3, edge_dim=2).eval()
    attributes = torch.randn(7, 2)
    found = [by_pyg(model, gradients(), graph, edge_attr=attributes * scale) for scale in (1, 100)]
    assert torch.equal(*found)
    ours = [ew.explain(model, Data(x=graph.x, edge_index=ENDS, edge_attr=attributes * scale), 3) for scale in (1, 100)]
    assert not torch.allclose(ours[0].scores, ours[1].scores)


def test_several_nodes_share_one_mask_that_is_the_sum(graph):
    model = GCN(4, 8, 2, 3).eval()
    joint = by_pyg(model, gradients(), graph, index=torch.tensor([1, 3]))
    torch.testing.assert_close(joint, sum(one.scores for one in ew.explain(model, graph, [1, 3])))

"""`heal` gives a model that PyG's explainers have touched its old outputs and gradients back."""

import copy

import pytest
import torch
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer, GraphMaskExplainer, PGExplainer
from torch_geometric.explain.algorithm.utils import set_masks
from torch_geometric.nn import GCN, MessagePassing

import edgewise as ew
from checks import assert_close
from pyg_small import CONFIG, small

pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")


def poison(model, data, algorithm):
    explainer = Explainer(model, algorithm, "phenomenon", CONFIG, edge_mask_type="object")
    target = torch.zeros(data.num_nodes, dtype=torch.long)
    if isinstance(algorithm, PGExplainer):
        for epoch in range(algorithm.epochs):
            algorithm.train(epoch, model, data.x, data.edge_index, target=target, index=3)
    explainer(data.x, data.edge_index, target=target, index=3)


def gradients(model, data):
    """Of all parameters."""
    loss = model(data.x, data.edge_index).square().sum()
    return torch.autograd.grad(loss, list(model.parameters()))


POISONS = {
    "gnn": lambda: [GNNExplainer(epochs=2)],
    "pg": lambda: [PGExplainer(epochs=2)],
    "graph_mask": lambda: [GraphMaskExplainer(2, epochs=1, log=False)],
    "all": lambda: [
        GNNExplainer(epochs=2),
        GraphMaskExplainer(2, epochs=1, log=False),
        PGExplainer(epochs=1),
    ],
}


@pytest.mark.parametrize("name", POISONS)
def test_a_poisoned_model_gives_its_old_outputs_and_gradients(name):
    model, data = small()
    fresh, keys = copy.deepcopy(model), list(model.state_dict())
    for algorithm in POISONS[name]():
        poison(model, data, algorithm)
    ew.heal(model)
    assert torch.equal(model(data.x, data.edge_index), fresh(data.x, data.edge_index))
    for one, other in zip(gradients(model, data), gradients(fresh, data), strict=True):
        assert torch.equal(one, other)
    assert list(model.state_dict()) == keys
    assert all(parameter.requires_grad for parameter in model.parameters())
    for layer, twin in zip(model.modules(), fresh.modules(), strict=True):
        assert vars(layer).keys() - vars(twin).keys() <= {"propagate"}  # PyG keeps a bound method of the class itself
        assert layer._parameters.keys() == twin._parameters.keys()


def test_graph_mask_does_harm_that_is_healed():
    model, data = small()
    before = model(data.x, data.edge_index)
    poison(model, data, GraphMaskExplainer(2, epochs=1, log=False))
    assert (model(data.x, data.edge_index) - before).abs().max() > 0.01
    assert not any(parameter.requires_grad for parameter in model.parameters())
    repairs = ew.heal(model)
    assert repairs == (
        "convs.0: its own messages are restored.",
        "convs.1: its own messages are restored.",
        "all 4 parameters are trainable again.",
    )
    assert torch.equal(model(data.x, data.edge_index), before)
    assert ew.heal(model) == ()


def test_gnn_explainer_does_harm_that_is_healed():
    pytest.importorskip("captum")
    model, data = small()
    truth = ew.explain(model, data, index=3).scores
    poison(model, data, GNNExplainer(epochs=2))
    inside = Explainer(model, CaptumExplainer("Saliency", abs=False), "model", CONFIG, edge_mask_type="object")
    with pytest.raises(RuntimeError, match="not have been used"):
        inside(data.x, data.edge_index, index=3)
    repairs = ew.heal(model)
    assert any("no longer a parameter" in text for text in repairs)
    assert_close(inside(data.x, data.edge_index, index=3).edge_mask, truth, 1e-5)


def test_after_healing_a_pg_explainer_learns_again():
    model, data = small()
    poison(model, data, GNNExplainer(epochs=2))
    ew.heal(model)
    algorithm = PGExplainer(epochs=3)
    poison(model, data, algorithm)
    assert any(
        parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in algorithm.mlp.parameters()
    )


def test_an_interrupted_run_is_cleaned_up():
    model, data = small()
    before = model(data.x, data.edge_index)
    set_masks(model, torch.zeros(data.num_edges), data.edge_index, apply_sigmoid=False)
    assert not torch.equal(model(data.x, data.edge_index), before)
    assert len(ew.heal(model)) == 4
    assert torch.equal(model(data.x, data.edge_index), before)
    assert ew.heal(model) == ()


def test_parameters_that_the_user_froze_stay_frozen():
    model, data = small()
    model.convs[0].lin.weight.requires_grad_(False)
    poison(model, data, GNNExplainer(epochs=1))
    ew.heal(model)
    assert not model.convs[0].lin.weight.requires_grad
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    assert ew.heal(model) == ()  # no sign of GraphMask: every one of them was frozen on purpose
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_if_one_parameter_is_trainable_none_is_unfrozen():
    model, data = small()
    poison(model, data, GraphMaskExplainer(2, epochs=1, log=False))
    model.convs[1].bias.requires_grad_(True)
    ew.heal(model)
    assert [name for name, parameter in model.named_parameters() if parameter.requires_grad] == ["convs.1.bias"]


def test_what_the_user_set_on_a_layer_stays():
    model, _ = small()

    def own_messages(self, inputs, dim_size):
        return 2 * inputs

    model.convs[0].explain = False
    model.convs[1].explain_message = own_messages.__get__(model.convs[1], MessagePassing)
    assert ew.heal(model) == ()
    assert model.convs[0].explain is False
    assert model.convs[1].explain_message.__func__ is own_messages


def test_what_is_no_model_is_refused():
    with pytest.raises(ew.ModelError, match=r"ew.heal\(model\)"):
        ew.heal(GCN)

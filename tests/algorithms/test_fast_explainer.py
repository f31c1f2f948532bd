"""`gnn_explainer_fast`: GNNExplainer's steps, with a new gradient of the model only now and then."""

import pytest
import torch

import edgewise as ew
import oracles
from checks import assert_close, node_problem
from edgewise.algorithms import gnn_explainer as algorithm
from edgewise.errors import SettingError

SETTINGS = {"epochs": 30, "lr": 0.1, "edge_size": 0.005, "edge_ent": 1.0}


def slow_twin(numbers, model, data, index, init, passes, *, epochs, lr, edge_size, edge_ent):
    """Written from the docstring: Adam by hand, the model differentiated at the epochs (i / passes)^2.5 of the way."""
    target = model(data.x, data.edge_index)[index].argmax()
    fresh = [round(epochs * (i / passes) ** 2.5) for i in range(passes)]
    logits, first, second = init.clone(), torch.zeros_like(init), torch.zeros_like(init)
    alive = held = None
    for epoch in range(epochs):
        mask = logits.sigmoid()
        if epoch in fresh:
            weight = mask.clone().requires_grad_()
            rows = weight if weight.dim() == 2 else weight.expand(numbers.twin.layers, -1)
            loss = oracles.pyg_loss(numbers.twin(rows)[index], target, "multiclass")
            (held,) = torch.autograd.grad(loss, weight)
        slope = held * mask * (1 - mask)
        if alive is not None:
            count = alive.sum(-1, keepdim=True).clamp(min=1)
            slope = slope + alive * (edge_size - edge_ent / count * logits) * mask * (1 - mask)
        else:
            alive = (slope != 0).to(init.dtype)
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        step = (first / (1 - 0.9 ** (epoch + 1))) / ((second / (1 - 0.999 ** (epoch + 1))).sqrt() + 1e-8)
        logits = logits - lr * step
    return logits.sigmoid() * alive


@pytest.mark.parametrize("level", ["input", "layer"])
@pytest.mark.parametrize("passes", [1, 3])
def test_it_takes_the_steps_of_the_formula(double, level, passes):
    _, model, data, numbers = node_problem("gcn_relu", "directed")
    generator = torch.Generator().manual_seed(1)
    shape = (data.num_edges,) if level == "input" else (numbers.twin.layers, data.num_edges)
    init = torch.randn(shape, generator=generator, dtype=torch.double)
    for index in (1, 4):
        why = ew.explain(
            model, data, index, method="gnn_explainer_fast", level=level, passes=passes, init=init, **SETTINGS
        )
        expected = slow_twin(numbers, model, data, index, init, passes, **SETTINGS)
        assert (expected > 0).sum() > 1
        assert_close(why.scores, expected, 1e-9)


def test_it_differentiates_the_model_as_often_as_it_says(monkeypatch):
    _, model, data, _ = node_problem("gcn_relu", "directed")
    calls = []
    real = algorithm.loss_gradient
    monkeypatch.setattr(algorithm, "loss_gradient", lambda *given: (calls.append(1), real(*given))[1])
    ew.explain(model, data, 1, method="gnn_explainer_fast", passes=5)
    assert len(calls) == 5


def test_on_infection_a_few_passes_are_as_close_as_another_start_and_one_is_closer_than_positive_gradients(
    trained_infection,
):
    model, graph, nodes = trained_infection.model, trained_infection.graphs.test, range(0, 1000, 10)

    def cosine(method, **settings):
        found = ew.explain(model, graph, nodes, method=method, **settings)
        return float(ew.similarity(found, reference).nanmean())

    reference = ew.explain(model, graph, nodes, method="gnn_explainer")
    assert cosine("gnn_explainer_fast") > 0.99
    assert cosine("gnn_explainer_fast", passes=1) > 0.95 > 0.9 > cosine("positive_gradient")


@pytest.mark.parametrize("passes", [0, 2.5, True])
def test_a_number_of_passes_that_cannot_be_is_refused(passes):
    _, model, data, _ = node_problem("gcn_relu", "directed")
    with pytest.raises(SettingError, match="passes"):
        ew.explain(model, data, 1, method="gnn_explainer_fast", passes=passes)

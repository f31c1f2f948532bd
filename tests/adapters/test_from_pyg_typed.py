"""`from_pyg` on typed graphs gives what PyG itself gives for the `HeteroData`, mask by mask."""

import copy

import pytest
import torch
from torch_geometric.explain import CaptumExplainer, DummyExplainer, Explainer, GNNExplainer, PGExplainer
from torch_geometric.explain.config import ModelConfig

import edgewise as ew
from edgewise.question.typed_question import flat_data
from footprint import Footprint
from pyg_versions import TAKES_TYPES
from typed_zoo import FOLLOWS, KINDS, TAGS, call, typed_model

pytest.importorskip("captum")
ALGORITHMS = {
    "gnn": lambda: GNNExplainer(epochs=4),
    "dummy": DummyExplainer,
    "saliency": lambda: CaptumExplainer("Saliency", abs=False),
}


class Movies(torch.nn.Module):
    """The rows of one type, as PyG wants them; for Captum the explained number."""

    def __init__(self, model, column):
        super().__init__()
        self.model, self.column = model, column

    def forward(self, x, edge_index):
        rows = self.model(x, edge_index)["movie"]
        return rows if self.column is None else rows[:, self.column]


def problem(name):
    model, data = typed_model(name, 3)
    data[TAGS].edge_index = torch.tensor([[0, 1, 2], [0, 1, 2]])  # PyG raises where an edge type cannot matter
    return model, data


def by_pyg(algorithm, model, data, index, column):
    captum = isinstance(algorithm, CaptumExplainer)
    mode = "regression" if captum else "multiclass_classification"
    explainer = Explainer(
        Movies(copy.deepcopy(model), column if captum else None), algorithm, "phenomenon",
        ModelConfig(mode=mode, task_level="node", return_type="raw"), edge_mask_type="object",
    )  # fmt: skip
    rows = call(model, data)["movie"].detach()
    target = rows.argmax(dim=-1)
    target[index] = column
    torch.manual_seed(index)
    found = explainer(data.x_dict, data.edge_index_dict, target=target, index=index)
    return found.collect("edge_mask")


of_types = pytest.mark.skipif(not TAKES_TYPES, reason="this GNNExplainer takes no typed graph")


@pytest.mark.parametrize("name", [pytest.param("gnn", marks=of_types), "dummy", "saliency"])
@pytest.mark.parametrize("zoo", ["sage sum", "to_hetero sage"])
def test_masks_are_those_of_pyg(zoo, name):
    model, data = problem(zoo)
    before = Footprint(model, flat_data(data))
    found = ew.explain(model, data, ("movie", [1, 3]), method=ew.from_pyg(ALGORITHMS[name]()))
    before.assert_unchanged()
    for why in found:
        true = by_pyg(ALGORITHMS[name](), model, data, why.index[1], why.target)
        for kind in KINDS:
            torch.testing.assert_close(why.scores[kind], true[kind].double(), rtol=0, atol=1e-12)
    if name != "dummy":
        assert float(found[0].scores[FOLLOWS].abs().sum()) > 0


def test_what_pyg_cannot_do_is_said():
    model, data = problem("sage sum")
    with pytest.raises(ew.SettingError, match="PGExplainer takes a Data"):
        ew.explain(model, data, ("movie", 1), method=ew.from_pyg(PGExplainer(epochs=1)))
    model, data = problem("by hand")  # its layers are in no ModuleDict by edge type
    with pytest.raises(ew.ModelError, match="GNNExplainer"):
        ew.explain(model, data, ("movie", 1), method=ew.from_pyg(GNNExplainer(epochs=1)))

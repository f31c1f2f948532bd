"""One explanation and a set have the same verbs; rows of `top` have names and print as tables; parts of data have names."""

import pytest
import torch
from torch_geometric.data import HeteroData

import edgewise as ew
import zoo

VERBS = ("save", "top", "plot", "to_frame", "to_rows", "page", "__len__", "__iter__", "__getitem__", "_repr_html_")


@pytest.fixture
def asked():
    data = zoo.GRAPHS["directed"]()
    data.test_mask = torch.zeros(data.num_nodes, dtype=torch.bool)
    data.test_mask[[1, 4]] = True
    return zoo.BY_NAME["gcn"].build(), data


@pytest.mark.parametrize("verb", VERBS)
def test_one_and_many_have_the_same_verbs(verb):
    assert callable(getattr(ew.Explanation, verb))
    assert callable(getattr(ew.ExplanationSet, verb))


def test_one_explanation_is_a_set_of_one(asked):
    why = ew.explain(*asked, 3)
    assert len(why) == 1
    assert why[0] is why[-1] is why[:10] is why
    assert list(why) == [why]
    with pytest.raises(IndexError, match=r"why\[0\]"):
        why[1]
    with pytest.raises(IndexError, match=r"why\[0\]"):
        why[1:]


@pytest.mark.parametrize("level", ["input", "layer"])
def test_rows_of_top_have_the_fields_of_the_contract_and_print_as_a_table(asked, level):
    why = ew.explain(*asked, 3, level=level)
    rows = why.top(4, by="magnitude")
    assert rows[0]._fields == ("score", "source", "receiver", "column", *(["layer"] if level == "layer" else []))
    for row in rows:
        assert type(row.score) is float
        assert data_ends(why, row.column) == (row.source, row.receiver)
    lines = str(rows).splitlines()
    assert lines[0].split() == list(rows[0]._fields)
    assert len(lines) == len(rows) + 1
    assert repr(rows[0]) == repr(tuple(rows[0]))
    assert "<table>" in rows._repr_html_()
    assert str(why.top(0)) == "no scores of that sign"


def test_rows_of_features_are_named_too(asked):
    rows = ew.features(*asked, 3).top(2, by="magnitude")
    assert rows[0]._fields[:3] == ("score", "node", "feature")
    assert rows[0] == tuple(rows[0])
    assert str(rows).splitlines()[0].split()[:3] == ["score", "node", "feature"]


def data_ends(why, column):
    return tuple(why.edge_index[:, column].tolist())


def test_top_of_a_set_has_the_rows_of_each(asked):
    found = ew.explain(*asked, [3, 5])
    tops = found.top(2)
    assert list(tops) == [why.top(2) for why in found]
    assert str(tops).startswith("3\nscore")
    assert "<table>" in tops._repr_html_()


@pytest.mark.parametrize(("method", "level"), [("occlusion", "layer"), ("gradient", "input"), ("shapley", "input")])
def test_saving_one_explanation_loses_nothing(asked, tmp_path, method, level):
    settings = {"samples": 4} if method == "shapley" else {}
    why = ew.explain(*asked, 3, method=method, level=level, **settings)
    why.save(tmp_path / "one.npz")
    (again,) = ew.load(tmp_path / "one.npz")
    for name in ("scores", "self_scores", "standard_errors"):
        one, other = getattr(why, name), getattr(again, name)
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    assert (again.index, again.target, again.value, again.level) == (why.index, why.target, why.value, level)


def test_saving_one_explanation_keeps_what_cannot_be_separated(asked, tmp_path):
    model, data = zoo.BY_NAME["pna"].build(), asked[1]
    why = ew.explain(model, data, 3, level="layer")
    why.save(tmp_path / "one.npz")
    torch.testing.assert_close(why.self_scores, ew.load(tmp_path / "one.npz")[0].self_scores, equal_nan=True)


def test_a_name_means_the_mask_of_that_name(asked):
    model, data = asked
    assert ew.explain(model, data, "test").index.tolist() == [1, 4]
    assert ew.explain(model, data, "test_mask").index.tolist() == [1, 4]
    with pytest.raises(ew.InputError, match=r"no val_mask. Its masks are: 'test'"):
        ew.explain(model, data, "val")
    data.test_mask = data.test_mask.view(-1, 1).expand(-1, 10)
    with pytest.raises(ew.InputError, match=r"10 splits.*test_mask\[:, 0\]"):
        ew.explain(model, data, "test")


def test_a_name_means_the_mask_of_a_type():
    from edgewise.question.target import named_part

    data = HeteroData()
    data["paper"].test_mask = torch.tensor([True, False])
    kind, mask = named_part(data, ("paper", "test"), "node")
    assert (kind, mask.tolist()) == ("paper", [True, False])
    with pytest.raises(ew.InputError, match="no test_mask"):
        named_part(data, ("author", "test"), "node")


def test_a_result_writes_a_page_about_itself(asked, tmp_path):
    from page_files import data_of

    found = ew.explain(*asked, [3, 5], method="occlusion", target=1)
    found.page(tmp_path / "why.html", *asked, check=False, walks=0)
    told = data_of(tmp_path / "why.html")
    assert [(record["index"], record["target"]) for record in told["targets"]] == [(3, 1), (5, 1)]
    assert told["methods"] == ["occlusion"]
    found[0].page(tmp_path / "one.html", *asked, check=False, walks=0, levels=["input"])
    assert len(data_of(tmp_path / "one.html")["targets"]) == 1


def test_comparisons_and_checks_have_views_for_notebooks(asked):
    found = ew.compare(*asked, [3, 5], methods=["gradient", "occlusion"], yardsticks=False)
    assert f"{float(found.matrix('cosine', 'input', None)[0, 1]):.2f}</td>" in found._repr_html_()
    assert "<table>" in ew.check(*asked, [3])._repr_html_()


def test_a_set_draws_a_figure_for_each_but_not_hundreds(asked):
    found = ew.explain(*asked, [3, 5])
    assert len(found.plot()) == 2
    many = found[[0] * 30]
    with pytest.raises(ew.InputError, match="too many to look at"):
        many.plot()


def test_walks_of_several_targets_print_one_below_the_other(asked):
    one, many = ew.walks(*asked, 3, k=2), ew.walks(*asked, "test", k=2)
    assert isinstance(many, list)
    assert str(many) == f"{many[0]}\n\n{many[1]}"
    assert str(ew.walks(*asked, [3], k=2)) == str(one)
    assert many._repr_html_().count("<table") == 2

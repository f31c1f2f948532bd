"""`register_method` and entry points: anybody's function of a score beside ours, in every table."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import edgewise as ew
from checks import assert_close
from edgewise.algorithms import own_methods, registry


@pytest.fixture(autouse=True)
def unregistered(monkeypatch):
    monkeypatch.setattr(registry, "registered_methods", {})
    monkeypatch.setattr(own_methods, "registered_methods", registry.registered_methods)


@pytest.fixture
def problem():
    torch.manual_seed(0)
    data = Data(x=torch.randn(8, 4).double(), edge_index=torch.randint(0, 8, (2, 24)))
    return GCN(4, 6, 2, 3).double().eval(), data


def doubled(score, *, level, seed, times=2.0):
    weight = score.ones().requires_grad_()
    (found,) = torch.autograd.grad(score(weight).sum(), weight)
    return times * (found if level == "layer" else found.sum(dim=0))


@pytest.mark.parametrize("level", ["input", "layer"])
def test_a_registered_method_is_one_of_all(problem, level):
    ew.register_method("doubled", doubled)
    assert ew.methods()["doubled"].settings == {"times": 2.0}
    assert "doubled" in repr(ew.methods())
    ours = ew.explain(*problem, [1, 4], level=level)
    for times in (2.0, 5.0):
        found = ew.explain(*problem, [1, 4], method="doubled", level=level, times=times)
        for one, other in zip(found, ours, strict=True):
            assert_close(one.scores, times * other.scores, 1e-12)
    assert ew.compare(*problem, [1, 4], methods=["doubled", "gradient"]).pair(
        "doubled", "gradient"
    ).mean == pytest.approx(1)
    assert ew.explain(*problem, 1, method="doubled", top=2).settings["top"] == 2


def test_only_its_levels_are_known(problem):
    ew.register_method("by_layer", doubled, levels=("layer",))
    with pytest.raises(ew.SettingError, match="no level 'input'"):
        ew.explain(*problem, 1, method="by_layer")


def test_own_terms_may_come_with_the_edges(problem):
    ew.register_method("ones", lambda score, *, level, seed: (score.ones(), 3 * score.self_ones()), levels=["layer"])
    why = ew.explain(*problem, 1, method="ones", level="layer")
    assert set(why.self_scores.unique().tolist()) <= {0.0, 3.0}


@pytest.mark.parametrize("name", ["gradient", "two words", "", "own"])
def test_a_name_that_is_taken_or_cannot_be_typed_is_refused(name):
    ew.register_method("own", doubled)
    with pytest.raises(ew.SettingError, match="name"):
        ew.register_method(name, doubled)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda score, *, level, seed: 1 // 0, "ZeroDivisionError"),
        (lambda score, *, level, seed: torch.ones(1), "shape"),
        (lambda score, *, level, seed: "abc", "shape"),
        (lambda score, *, level, seed: score.ones() * torch.nan, "NaN"),
    ],
)
def test_what_a_strangers_function_does_wrong_is_said_with_its_name(problem, function, says):
    ew.register_method("strange", function, levels=["layer"])
    with pytest.raises(ew.SettingError, match=rf"'strange'.*{says}"):
        ew.explain(*problem, 1, method="strange", level="layer")


def test_methods_of_installed_packages_are_found(monkeypatch, tmp_path):
    (tmp_path / "their_package.py").write_text(
        "def halved(score, *, level, seed, by=2.0):\n"
        "    ones = score.ones() / by\n"
        "    return ones if level == 'layer' else ones[0]\n"
    )
    about = tmp_path / "their_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[edgewise.methods]\nhalved = their_package:halved\nlost = nowhere:gone\n")
    monkeypatch.syspath_prepend(tmp_path)
    own_methods.load_entry_points.cache_clear()
    with pytest.warns(UserWarning, match="'lost'"):
        assert ew.methods()["halved"].settings == {"by": 2.0}
    own_methods.load_entry_points.cache_clear()

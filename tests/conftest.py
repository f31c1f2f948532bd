"""One thread, float64, data sets that are copied before they are read, a trained model, and a hypothesis profile."""

import os
import shutil
from zlib import crc32

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch_geometric.explain import GNNExplainer, PGExplainer

from edgewise.datasets import infection_model
from long_cases import ALWAYS, LONG, kept_share
from missing import skip_or_fail
from places import data_root

torch.set_num_threads(1)

# A graph and three explanations per example: a few examples find what there is to find, and the same ones every time.
# EDGEWISE_THOROUGH=1 draws many, and new ones in every run.
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile(
    "quick", max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=_QUIET
)
settings.register_profile("thorough", max_examples=200, deadline=None, print_blob=True, suppress_health_check=_QUIET)
settings.load_profile("thorough" if os.environ.get("EDGEWISE_THOROUGH") else "quick")


@pytest.fixture(scope="session")
def raw_data(tmp_path_factory):
    """A function from a data set's name to a folder with a private copy of it: PyG writes beside what it reads."""
    copies = tmp_path_factory.mktemp("data")

    def copy(name: str) -> str:
        source = data_root() / name
        if not source.is_dir():
            skip_or_fail(f"no {name} in {data_root()}: set EDGEWISE_DATA to the folder that holds it")
        if not (copies / name).exists():
            shutil.copytree(source, copies / name, ignore=shutil.ignore_patterns("processed"))
            for folder in [copies / name, *(path for path in (copies / name).rglob("*") if path.is_dir())]:
                folder.chmod(0o755)  # the original may be read-only
        return str(copies)

    return copy


@pytest.fixture(scope="session")
def trained_infection():
    """The model that learns Infection, trained once. Tests read it; one that changes it takes a copy."""
    return infection_model(0)


@pytest.fixture
def double():
    """Tensors made without a dtype are float64 while the test runs."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield torch.float64
    torch.set_default_dtype(before)


@pytest.fixture(autouse=True)
def _own_coefficients(monkeypatch):
    """PyG's PGExplainer, and in 2.5 its GNNExplainer, keep settings on the class, where the next test would find them."""
    for explainer in (GNNExplainer, PGExplainer):
        if hasattr(explainer, "coeffs"):
            monkeypatch.setattr(explainer, "coeffs", dict(explainer.coeffs))


def pytest_collection_modifyitems(items):
    """Mark the long cases, and most of many like ones, as slow."""
    alike = {}
    for item in items:
        if item.nodeid.endswith(LONG):
            item.add_marker(pytest.mark.slow)
        elif item.nodeid.startswith("tests/") and not item.nodeid.startswith(ALWAYS) and "[" in item.nodeid:
            alike.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in alike.values():
        for case in cases:
            if crc32(case.nodeid.encode()) % kept_share(
                len(cases)
            ):  # not by turns, which would leave out one level of two
                case.add_marker(pytest.mark.slow)

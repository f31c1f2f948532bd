"""Every extra alone imports and works: the packages of all others are made unfindable."""

import os
import re
import subprocess
import sys
from importlib.metadata import requires

import pytest

PACKAGES = {
    "cli": ("typer", "rich", "safetensors"),
    "paper": ("scipy", "jinja2"),
    "fast": ("numba",),
    "plot": ("matplotlib", "networkx"),
    "page": ("bokeh",),
    "table": ("pyarrow", "pandas"),
    "chem": ("rdkit",),
    "peers": ("captum",),
    "dask": ("distributed", "dask"),
}
ALWAYS = {"jinja2", "networkx"}  # torch needs them
ALWAYS |= {re.split(r"\W", one)[0] for one in requires("torch_geometric") if "extra ==" not in one}  # scipy in PyG 2.5
NEEDED = {"page": {"pandas"}, "chem": {"pandas"}, "peers": {"matplotlib"}}  # the packages of an extra need them

START = """
import importlib.abc, sys
class Without(importlib.abc.MetaPathFinder):
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in BLOCKED else self.finder.find_spec(name, path, target)
    def find_distributions(self, *context):  # versions, which packages read of themselves
        find = getattr(self.finder, "find_distributions", None)
        return find(*context) if find else []
sys.meta_path = [Without(finder) for finder in sys.meta_path]
import torch
import edgewise as ew
from edgewise.examples import path_model
model, data = path_model(gains=[2.0, 3.0])
why = ew.explain(model, data, index=2)
assert why.scores.tolist() == [6.0, 6.0]
"""

USES = {
    "cli": "from edgewise.cli import main\nsys.argv = ['edgewise', 'methods']\ntry:\n    main()\nexcept SystemExit as end:\n"
    "    assert not end.code, end.code",
    "paper": "import edgewise_paper",
    "fast": "from edgewise.program.kernels import kernels_for\nassert kernels_for(10**6, torch.ones(1)) is not None",
    "plot": "why.plot()",
    "page": "ew.write_page('why.html', model, data, 2, epochs=2)",
    "table": "why.save('why.parquet')\nassert ew.load('why.parquet')\nassert len(why.to_frame()) == 2",
    "chem": "import rdkit.Chem\nfrom torch_geometric.utils import from_smiles\nassert ew.molecule",
    "peers": "from torch_geometric.explain import CaptumExplainer\new.explain(model, data, 2, "
    "method=ew.from_pyg(CaptumExplainer('Saliency')))",
    "dask": "from edgewise.jobs.dask_worker import packed\nassert packed(dict)",
}


@pytest.mark.parametrize(
    "extra", [pytest.param(name, marks=[] if name == "plot" else pytest.mark.slow) for name in USES]
)
def test_an_extra_works_without_the_others(extra, tmp_path):
    others = {package for name, names in PACKAGES.items() if name != extra for package in names}
    blocked = others - ALWAYS - NEEDED.get(extra, set())
    code = START.replace("BLOCKED", repr(sorted(blocked))) + USES[extra]
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]

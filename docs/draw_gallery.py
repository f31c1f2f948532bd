"""Draw the pictures of the gallery again, with the code of the pages they stand on: `python docs/draw_gallery.py`.

It needs every extra, Chromium, and MUTAG in `EDGEWISE_DATA`. The picture of methods that agree (`agreement.png`) takes longest.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from torch_geometric.data import Batch
from torch_geometric.nn import GraphConv, global_add_pool

import edgewise as ew
from edgewise.cli.demo_command import demo
from edgewise.cli.read.data import read_named
from edgewise.datasets import infection_model

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "examples"))
SCREEN = {"width": 1366, "height": 960}
METHODS = [
    *("gradient", "positive_gradient", "occlusion", "gnn_explainer", "integrated_gradients"),
    *("eig_search", "lrp", "goat_walks"),
]


class Classifier(torch.nn.Module):
    """The classifier of examples/mutag_page.py: three layers, a sum over the atoms, two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([GraphConv(7, 32), GraphConv(32, 32), GraphConv(32, 32)])
        self.head = torch.nn.Linear(32, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        """A row of logits for each molecule."""
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(global_add_pool(x, batch))


def infection(pictures: Path) -> None:
    """Layers and walks of docs/pictures.md, and the methods that agree of docs/trust.md."""
    trained = infection_model()
    model, data = trained.model, trained.graphs.test
    infected = {"infected": data.x[:, 1].nonzero().flatten().tolist()}
    ew.explain(model, data, index=22, level="layer").plot(marked=infected).savefig(pictures / "layers.png")
    ew.walks(model, data, index=22, k=5).plot(marked=infected).savefig(pictures / "walks.png")
    found = ew.compare(model, data, index=range(200), methods=METHODS, levels=["input", "layer"])
    found.plot("cosine").savefig(HERE / "agreement.png")


def molecule(pictures: Path) -> None:
    """A molecule of MUTAG, of a classifier that was trained for 60 epochs."""
    molecules = list(read_named("MUTAG", None, 0).data)
    torch.manual_seed(0)
    model, every = Classifier(), Batch.from_data_list(molecules)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(every.x, every.edge_index, every.batch), every.y).backward()
        optimizer.step()
    why = ew.explain(model, molecules, index=[10], task="graph")[0]
    ew.molecule(why, data=molecules[10]).save(pictures / "mutag.png")


def typed(pictures: Path) -> None:
    """An account of examples/typed_fraud.py."""
    import typed_fraud

    torch.manual_seed(0)
    data, _ = typed_fraud.made_up()
    typed_fraud.main()
    model = typed_fraud.Detector()
    model.load_state_dict(torch.load("fraud_weights.pt", weights_only=True))
    names = {kind: [f"{kind[0].upper()}{n}" for n in range(data[kind].num_nodes)] for kind in data.node_types}
    why = ew.explain(model, data, index=("account", 61))
    why.plot(labels=names, title="Why is account A61 a fraud?").savefig(pictures / "typed.png")


def page() -> None:
    """The page and the picture that `make demo` writes."""
    from playwright.sync_api import sync_playwright

    demo(out=Path("demo"))
    shutil.copy("demo/infection.png", HERE / "infection.png")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        shown = browser.new_page(viewport=SCREEN)
        shown.goto(Path("demo/why.html").resolve().as_uri())
        shown.wait_for_selector("body[data-ready]")
        shown.screenshot(path=HERE / "page.png")
        browser.close()


if __name__ == "__main__":
    wanted = HERE / "pictures"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        infection(wanted)
        molecule(wanted)
        typed(wanted)
        page()

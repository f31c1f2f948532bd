"""The Python blocks of a page of the documentation: found, and run in a namespace of the page's own."""

import re
from pathlib import Path

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GIN, global_add_pool

import edgewise as ew
from places import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Classifier(nn.Module):
    """A graph classifier, as the README takes one for granted."""

    def __init__(self):
        super().__init__()
        self.layers = GIN(4, 8, 2, 2)

    def forward(self, x, edge_index, batch):
        return global_add_pool(self.layers(x, edge_index), batch)


def granted(trained) -> dict:
    """The names that a page may use without making them: a model and its data, a graph classifier and its graphs."""
    molecules = [Data(x=torch.rand(6, 4), edge_index=torch.randint(6, (2, 12))) for _ in range(5)]
    return {
        "torch": torch,
        "ew": ew,
        "model": trained.model,
        "data": trained.graphs.test,
        "classifier": Classifier(),
        "molecules": molecules,
    }


def run(page: str | Path, names: dict) -> int:
    """Run the blocks of a page (a path below the checkout) from top to bottom in one namespace; how many there are."""
    path = ROOT / page
    text, blocks = path.read_text(encoding="utf-8"), 0
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1))  # so that an error names the line of the page
        exec(compile("\n" * line + block[1], path.name, "exec"), names)
        blocks += 1
    return blocks

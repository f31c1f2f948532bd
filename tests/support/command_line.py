"""What the tests of the command line share: a folder with a user's model, weights and data, and a way to call."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

from edgewise.cli.app import app
from places import ROOT

SOURCE = ROOT / "src"
MODEL = """
import torch
from torch_geometric.nn import GraphConv, global_add_pool


class Net(torch.nn.Module):
    def __init__(self, features: int, hidden: int = 4, classes: int = 3):
        super().__init__()
        self.first, self.second = GraphConv(features, hidden), GraphConv(hidden, classes)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Pooled(Net):
    def forward(self, x, edge_index, batch=None):
        return global_add_pool(super().forward(x, edge_index), batch)


ready = Net(3)
number = 5


def not_a_model():
    return 7


def broken():
    raise KeyError("no such file")
"""
NODES = 12


def call(*arguments, code: int = 0):
    """Run a command in this process; its exit code is what it should be, and no traceback is shown."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done


def error(*arguments) -> str:
    """The one line that bad input gives."""
    lines = call(*arguments, "--quiet", code=1).stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("Error: ")
    return lines[0]


def printed(*arguments, code: int = 0):
    """What `--json` prints."""
    return json.loads(call(*arguments, "--json", code=code).stdout)


@contextmanager
def running(*arguments, **options) -> Iterator[subprocess.Popen]:
    """The command in a process of its own, which receives Ctrl-C even if the tests run in the background.

    It leads a group of processes: at the end whatever is left of the group, workers included, is killed.
    """
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(
        [sys.executable, "-m", "edgewise", *map(str, arguments)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **options,
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def read_until(process: subprocess.Popen, part: str) -> None:
    """Read what a process says on stderr until a line has the part; at the latest until it ends."""
    next((line for line in process.stderr if part in line), None)


def ring(nodes: int = NODES, seed: int = 0) -> Data:
    """A ring with some chords, three features, three classes."""
    draw = torch.Generator().manual_seed(seed)
    at = torch.arange(nodes)
    edge_index = torch.stack([torch.cat([at, at]), torch.cat([(at + 1) % nodes, (at + 3) % nodes])])
    data = Data(x=torch.randn(nodes, 3, generator=draw), edge_index=edge_index, y=at % 3)
    data.test_mask = at >= nodes - 3
    return data


def network() -> torch.nn.Module:
    """The model of `MODEL`, made here: what the command line must reproduce."""
    names: dict = {}
    exec(MODEL, names)
    torch.manual_seed(1)
    return names["Net"](3).eval()


def workshop(folder: Path) -> torch.nn.Module:
    """A folder with net.py, weights.pt, graph.npz and graph.pt; the model with those weights."""
    model = network()
    (folder / "net.py").write_text(MODEL)
    torch.save(model.state_dict(), folder / "weights.pt")
    data = ring()
    np.savez(folder / "graph.npz", **{name: value.numpy() for name, value in data.to_dict().items()})
    torch.save(data, folder / "graph.pt")
    return model


MINE = ("--model", "net.py:Net", "--model-args", "features=3", "--weights", "weights.pt", "--data", "graph.npz")

"""Eight threads explain, two predict, one trains a copy and one draws random numbers: nobody notices the others.

    python tests/support/thread_campaign.py 600          # seconds, shared by the models below

Predictions are compared with those before, every number that is drawn must be new, and explanations must be those of one
thread alone. It prints what was done and what was found, and ends with 1 if anything was.
"""

import copy
import itertools
import random
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATv2Conv, GCNConv, LayerNorm

import edgewise as ew


class Net(nn.Module):
    """Two layers and dropout; nothing that cannot be copied."""

    conv = GCNConv

    def __init__(self):
        super().__init__()
        self.one, self.two = self.conv(6, 8), self.conv(8, 3)
        self.norm, self.dropout = LayerNorm(8, mode="node"), nn.Dropout(0.5)

    def forward(self, x, edge_index):
        return self.two(self.between(self.one(x, edge_index)), edge_index)

    def between(self, x):
        return self.dropout(self.norm(x).relu())


class Attention(Net):
    conv = GATv2Conv


class Locked(Net):
    """Holds locks, a file, a pool of threads and a weak reference to itself, and uses them."""

    def __init__(self):
        super().__init__()
        self.lock, self.file, self.pool = threading.Lock(), tempfile.TemporaryFile(), ThreadPoolExecutor(1)  # noqa: SIM115
        self.me, self.numbers = weakref.ref(self), itertools.count()

    def between(self, x):
        with self.lock:
            return self.me().dropout(self.norm(x).relu())


class Closed(Net):
    """Reaches past its copy: its middle is a function that knows this very object."""

    def __init__(self):
        super().__init__()
        self.middle = lambda x: self.dropout(self.norm(x).relu())

    def between(self, x):
        return self.middle(x)


class Refusing(Net):
    """Raises where it is copied, and where it is pickled."""

    def __deepcopy__(self, memo):
        raise RuntimeError("never copied")

    def __reduce_ex__(self, version):
        raise TypeError("never pickled")


class Single(Net):
    """One object of its class, whatever is asked of it."""

    only = None

    def __new__(cls):
        cls.only = cls.only or super().__new__(cls)
        return cls.only

    def __deepcopy__(self, memo):
        return self


MODELS = (Net, Attention, Locked, Closed, Refusing, Single)


class Crowd:
    """All threads of one model, for some seconds."""

    def __init__(self, make):
        torch.manual_seed(0)
        self.model = make().eval()
        self.data = Data(x=torch.randn(40, 6), edge_index=torch.randint(0, 40, (2, 120)))
        self.calls = [
            lambda i, how=how: self._explained(i, **how)
            for how in ({"level": "layer"}, {"method": "occlusion"}, {"method": "gnn_explainer", "epochs": 3})
        ]
        self.calls.append(lambda i: ew.features(self.model, self.data, i).scores)
        self.expected = {(k, i): call(i) for k, call in enumerate(self.calls) for i in range(8)}
        with torch.no_grad():
            self.output = self.model(self.data.x, self.data.edge_index)
        self.trained = Net().train() if make is not Attention else copy.deepcopy(self.model).train()
        self.done, self.counts, self.found = threading.Event(), Counter(), Counter()

    def _explained(self, index, **how):
        return ew.explain(self.model, self.data, index, **how).scores

    def explain(self, seed):
        """Calls drawn from the list, compared with the same call alone."""
        draw = random.Random(seed)
        while not self.done.is_set():
            which = draw.randrange(len(self.calls)), draw.randrange(8)
            found = self.calls[which[0]](which[1])
            self.counts["explanations"] += 1
            if not torch.allclose(found, self.expected[which], rtol=1e-3, atol=1e-5):
                self.found["wrong explanations"] += 1

    def predict(self, _):
        """The user's own model, with and without gradients."""
        while not self.done.is_set():
            output = self.model(self.data.x, self.data.edge_index)
            self.counts["predictions"] += 1
            if not torch.equal(output.detach(), self.output) or not output.requires_grad or self.model.training:
                self.found["wrong predictions"] += 1

    def train(self, _):
        """A copy, with dropout, which draws from torch's generator."""
        optimizer = torch.optim.Adam(self.trained.parameters())
        while not self.done.is_set():
            optimizer.zero_grad()
            self.trained(self.data.x, self.data.edge_index).square().sum().backward()
            optimizer.step()
            self.counts["training steps"] += 1
            time.sleep(0.002)

    def draw(self, _):
        """Numbers of Python, numpy and torch: one that comes twice was set back."""
        seen = {name: set() for name in ("random", "numpy", "torch")}
        while not self.done.is_set():
            drawn = random.random(), float(np.random.random()), float(torch.rand(1, dtype=torch.float64))
            for name, number in zip(seen, drawn, strict=True):
                if number in seen[name]:
                    self.found[f"repeated draws of {name}"] += 1
                seen[name].add(number)
            self.counts["draws"] += 3
            time.sleep(0.0005)

    def _guarded(self, task, number):
        while not self.done.is_set():
            try:
                task(number)
            except BaseException as error:
                self.found[f"{task.__name__}: {type(error).__name__}: {str(error)[:120]}"] += 1

    def run(self, seconds):
        """Counts of what was done, and of what went wrong."""
        tasks = [*[(self.explain, k) for k in range(8)], (self.predict, 0), (self.predict, 1)]
        tasks += [(self.train, 0), (self.draw, 0)]
        threads = [threading.Thread(target=self._guarded, args=task) for task in tasks]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.done.set()
        for thread in threads:
            thread.join()
        return dict(self.counts), dict(self.found)


def main():
    """Every model for its share of the seconds."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    seconds, bad = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0, 0
    for make in MODELS:
        counts, found = Crowd(make).run(seconds / len(MODELS))
        bad += len(found)
        print(make.__name__, counts, "found:", found or "nothing", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

"""An interrupt at any moment of a public call leaves no trace: on the model, the data, the generators, or the thread."""

import random
import signal
import sys
import time

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

import edgewise as ew
import zoo
from footprint import Footprint

# An interrupt may fall into a finalizer, where Python can only report it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SHORT, LONG = 8, 100  # interrupts of a call: 8 calls, 2 kinds of interrupts
amounts = pytest.mark.parametrize("amount", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])

# Where an interrupt hurts most: at the first step of what opens, closes or restores something.
DELICATE = {
    *("__enter__", "__exit__", "__init__", "put_back", "start", "stop", "push_mode", "close_frames", "clear_frames"),
    *("give_back", "prepare", "_restore", "_check", "moved", "taken", "lent", "borrowed"),
}


class Net(nn.Module):
    """Two GCN layers, a norm and dropout; `own` may forbid copies."""

    def __init__(self, own=None):
        super().__init__()
        self.first, self.second = GCNConv(5, 4, cached=True), GCNConv(4, 3)
        self.norm, self.dropout, self.own = nn.BatchNorm1d(4), nn.Dropout(0.5), own

    def forward(self, x, edge_index):
        return self.second(self.dropout(self.norm(self.first(x, edge_index)).relu()), edge_index)


class Unique:
    def __deepcopy__(self, memo):
        raise RuntimeError("there is only one")


CALLS = {
    "explain": lambda model, data: ew.explain(model, data, [0, 1], level="layer"),
    "question": lambda model, data: ew.Question(model, data, 0).of(1).explain(method="occlusion"),
    "walks": lambda model, data: ew.walks(model, data, 0, k=2),
    "check": lambda model, data: ew.check(model, data, [0]),
}
calls = pytest.mark.parametrize("call", CALLS)
kinds = pytest.mark.parametrize("own", [None, Unique()], ids=["copied", "built anew"])


def problem(own):
    model, data = zoo.randomise(Net(own)), zoo.GRAPHS["everything"]()
    model.train()
    model.norm.eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    return model, data


def thread_state():
    return {
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
    }


class Alarm:
    """Interrupts the n-th of the delicate functions as it is entered; counts them where there is no n."""

    def __init__(self, at=None):
        self.at, self.count = at, 0

    def __call__(self, frame, event, _):
        if event == "call" and frame.f_code.co_name in DELICATE:
            self.count += 1
            if self.count == self.at:
                sys.settrace(None)
                raise KeyboardInterrupt

    def during(self, run):
        """Whether the interrupt was heard."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            run()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False


@amounts
@kinds
@calls
def test_an_interrupt_where_something_is_opened_or_closed_leaves_no_trace(call, own, amount):
    model, data = problem(own)
    CALLS[call](model, data)  # what is imported on first use
    counter = Alarm()
    counter.during(lambda: CALLS[call](model, data))
    before, thread = Footprint(model, data), thread_state()
    points = random.Random(0).sample(range(1, counter.count + 1), min(amount, counter.count))
    for point in points:
        heard = Alarm(point).during(lambda: CALLS[call](model, data))
        assert thread_state() == thread
        before.assert_unchanged()
        assert heard, "an interrupt was swallowed"


# One that comes inside a callback of the garbage collector or of a weak reference reaches nobody: Python only warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@amounts
@kinds
@calls
def test_an_interrupt_at_any_time_leaves_no_trace(call, own, amount):
    model, data = problem(own)
    CALLS[call](model, data)
    start = time.perf_counter()
    CALLS[call](model, data)
    usual = time.perf_counter() - start
    before, thread, heard = Footprint(model, data), thread_state(), 0
    draw = random.Random(0)

    def interrupt(*_):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(amount):
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, usual))
                CALLS[call](model, data)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                heard += 1
            assert thread_state() == thread
            before.assert_unchanged()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert heard > amount // 8, "too few interrupts arrived: the test could not fail"

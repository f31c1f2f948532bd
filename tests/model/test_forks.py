"""A process that is forked while a thread explains can explain, and ends."""

import os
import subprocess
import sys

import pytest
import torch

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="with CUDA torch itself takes no gradients in a forked process"
    ),
]

PROBLEM = """
import os, signal, sys, threading, time, warnings
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN, LayerNorm
import edgewise as ew

warnings.simplefilter("ignore")
torch.manual_seed(0)
data = Data(x=torch.randn(60, 8), edge_index=torch.randint(0, 60, (2, 180)))
data.link = torch.tensor([[0, 3], [5, 9]])
models = [GCN(8, 8, 2, 3).eval(), GCN(8, 8, 2, 3, norm=LayerNorm(8, mode="graph")).eval()]
asked = [ew.Question(model, data, [1, 2]) for model in models]

def tasks():
    for model, ask in zip(models, asked):
        yield lambda: ew.explain(model, data, [3, 4])
        yield lambda: ask.explain("occlusion")
        yield lambda: ask.of(5).explain(level="layer")

expected = [[why.value for why in list(task())] if k % 3 < 2 else [task().value] for k, task in enumerate(tasks())]

def forked(work, seconds=20):
    child = os.fork()
    if not child:
        code = 1
        try:
            code = work() or 0
        except BaseException as error:
            print("in a child:", repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"
"""
FORKS = (
    PROBLEM
    + """
stop = threading.Event()

def explain():
    while not stop.is_set():
        for task in tasks():
            task()

def child():
    torch.set_num_threads(1)
    for task, values in zip(tasks(), expected):
        found = task()
        listed = [found.value] if isinstance(found, ew.Explanation) else [why.value for why in found]
        assert all(abs(a - b) < 1e-5 for a, b in zip(listed, values)), (listed, values)

threads = [threading.Thread(target=explain) for _ in range(2)]
for thread in threads:
    thread.start()
found = []
for number in range(int(sys.argv[1])):
    time.sleep(0.003 * (number % 5))
    found.append(forked(child))
stop.set()
for thread in threads:
    thread.join()
print(sorted(set(map(str, found))))
"""
)
LONG = (
    PROBLEM
    + """
import edgewise.model.forks

edgewise.model.forks._PATIENCE = 0.2
ask, begun = asked[0], threading.Event()

def explain():
    with ask._posed.loan.taken():
        begun.set()
        time.sleep(3)

def child():
    ew.explain(models[0], data, 1)
    try:
        ask.explain()
    except ew.StaleQuestionError as error:
        return 7 if "forked" in str(error) else 8

thread = threading.Thread(target=explain)
thread.start()
begun.wait()
print(forked(child))
thread.join()
ask.explain()
with ask._posed.loan.taken():
    print(forked(lambda: asked[1].explain() and None))
"""
)
LEFT = (
    PROBLEM
    + """
import torch.nn.modules.module as modules
import edgewise.model.forks

edgewise.model.forks._PATIENCE = 0.2
begun, end = threading.Event(), threading.Event()

class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gcn, self.dropout = GCN(8, 8, 2, 3), torch.nn.Dropout(0.5)

    def forward(self, x, edge_index):
        x = self.between(x)
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            end.wait()
        return self.gcn(x, edge_index)

    def between(self, x):
        return self.dropout(x)

class Known(Plain):
    def between(self, x):
        return known[0].dropout(x)

def state():
    hooks = [len(table) for part in model.modules() for name, table in vars(part).items() if "hook" in name and table]
    return len(modules._global_forward_pre_hooks), hooks, [part.training for part in model.modules()]

def child():
    assert state() == before, (state(), before)
    found = ew.explain(model, data, [3, 4])
    assert all(abs(a.value - b.value) < 1e-5 for a, b in zip(found, expected))

model = {"watched": Plain, "lent": Known}[sys.argv[1]]()
known = [model]
expected, before = ew.explain(model, data, [3, 4]), state()
thread = threading.Thread(target=lambda: ew.explain(model, data, [3, 4]))
thread.start()
begun.wait()
assert state() != before
print(forked(child))
end.set()
thread.join()
assert state() == before
"""
)


def run(script, *arguments):
    """What a script prints, line by line."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split("\n")


@pytest.mark.parametrize("forks", ["6", pytest.param("100", marks=pytest.mark.slow)])
def test_children_that_are_forked_while_threads_explain_explain_and_end(forks):
    assert run(FORKS, forks)[0] == "['0']"  # codes of exit


def test_a_question_in_the_middle_of_a_long_pass_is_refused_in_the_child_and_goes_on_in_the_parent():
    assert run(LONG)[:2] == ["7", "0"]


@pytest.mark.parametrize("kind", ["watched", "lent"])
def test_hooks_and_loans_of_a_thread_that_is_not_there_are_gone_in_the_child(kind):
    assert run(LEFT, kind)[0] == "0"

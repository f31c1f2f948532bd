"""One GPU for each worker of a machine, told apart by the system's locks."""

import os
import signal
from types import SimpleNamespace

import torch

from edgewise.jobs import gpu_claim


def claimed_in_child(count: int) -> tuple[int, int]:
    """(a process that holds its claim until it is ended, what it claimed)."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, str(gpu_claim.claimed_gpu(count)).encode())
        signal.pause()
        os._exit(0)
    os.close(write)
    found = int(os.read(read, 10))
    os.close(read)
    return child, found


def test_workers_take_different_gpus_and_a_dead_one_gives_its_own_back(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_claim.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: SimpleNamespace(uuid=f"card-{number}"))
    children = [claimed_in_child(2) for _ in range(2)]
    assert {found for _, found in children} == {0, 1}
    third, found = claimed_in_child(2)
    assert found == third % 2  # none is left
    for child in (children[0][0], third):
        os.kill(child, 9)
        os.waitpid(child, 0)
    again, found = claimed_in_child(2)
    assert found == children[0][1]
    for child in (again, children[1][0]):
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_only_any_gpu_of_several_is_chosen(monkeypatch):
    seen = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(gpu_claim, "claimed_gpu", lambda count: 1)

    class Device:
        def __init__(self, number):
            seen.append(number)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(torch.cuda, "device", Device)
    assert gpu_claim.on_own_gpu(str, "cuda:0") is str
    assert gpu_claim.on_own_gpu(str, None) is str
    assert gpu_claim.on_own_gpu(len, "cuda")("abc") == 3
    assert seen == [1]

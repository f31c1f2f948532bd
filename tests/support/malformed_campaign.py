"""Many malformed calls of public functions, drawn from a seed: errors that are not ours, and what takes long or much memory.

    python tests/support/malformed_campaign.py /tmp/malformed 100000 1      # a folder, calls, a seed

Each call has one or two arguments that do not belong there. A finding is printed with what to pass to see it again; it does
not end the campaign, unless the process dies: then `last_call` in the folder says of what.
"""

import json
import os
import random
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch

import edgewise as ew
from malformed import JUNK, WRAPPINGS, Problem, junk, parameters

MOST_SECONDS, GIVEN_UP = 10.0, 60
MOST_MEMORY, LIMIT = 500 * 2**20, 12 * 2**30
"""Bytes above what the process had, and of addresses that it may have at all: a call must not fill the machine."""
MOST_TEXT = 1500
HOW = ["as it is"] * 3 + sorted(WRAPPINGS)
PROGRESS = 2000


class TooLongError(BaseException):
    """A call is given up; no `except Exception` may swallow it."""


def _give_up(*_: Any) -> None:
    raise TooLongError


def peak() -> int:
    """The most resident memory since it was last forgotten, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def outcome(function: Any, arguments: dict[str, Any]) -> str:
    """How a call ended: answered, refused, or what was wrong with it."""
    signal.alarm(GIVEN_UP)
    try:
        function(**arguments)
    except ew.EdgewiseError as error:
        return "refused" if 0 < len(str(error)) < MOST_TEXT else f"a refusal of {len(str(error))} letters"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
        plt.close("all")
    return "answered"


class Campaign:
    """Calls of one seed, and what was found."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.problem, self.draw = Problem(folder), random.Random(seed)
        calls = self.problem.calls()
        self.slots = [(name, key) for name in sorted(calls) for key in parameters(*calls[name])]
        self.counts: Counter[str] = Counter()
        self.slowest, self.most, self.findings = (0.0, ""), (0, ""), []  # type: Any, Any, list[dict[str, Any]]
        self.log = folder / "last_call"

    def call(self) -> None:
        """One malformed call."""
        name, key = self.draw.choice(self.slots)
        function, arguments = self.problem.calls()[name]
        known, wrong = parameters(function, arguments), {key}
        if self.draw.random() < 0.5:
            wrong.add(self.draw.choice(known if "[]" in name else [*known, "no_such_argument"]))
        drawn = {key: (self.draw.choice(HOW), self.draw.choice(sorted(JUNK))) for key in sorted(wrong)}
        given = {**arguments, **{key: junk(kind, how) for key, (how, kind) in drawn.items()}}
        self.log.write_text(f"{name} {drawn}\n")
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
        before, begin = peak(), time.monotonic()
        found = outcome(function, given)
        seconds, memory = time.monotonic() - begin, peak() - before
        self.most = max(self.most, (memory, f"{name} {drawn}"))
        self.slowest = max(self.slowest, (seconds, f"{name} {drawn}"))
        plain = found in ("answered", "refused")
        self.counts[found if plain else "foreign"] += 1
        if not plain or seconds > MOST_SECONDS or memory > MOST_MEMORY:
            finding = {"call": name, "arguments": drawn, "outcome": found, "seconds": round(seconds, 1)}
            finding["MB"] = memory >> 20
            self.findings.append(finding)
            print(json.dumps(finding), flush=True)

    def told(self) -> str:
        """What was done so far."""
        memory = f"at most {self.most[0] >> 20} MB ({self.most[1]})"
        return f"{dict(self.counts)}, slowest {self.slowest[0]:.1f} s ({self.slowest[1]}), {memory}"


def main() -> int:
    """All calls; in a folder of their own, because a text is a good name for a file."""
    folder, count, seed = Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    mpl.use("Agg")
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    signal.signal(signal.SIGALRM, _give_up)
    warnings.simplefilter("ignore")
    campaign = Campaign(folder, seed)
    for number in range(1, count + 1):
        campaign.call()
        if number % PROGRESS == 0:
            print(number, campaign.told(), flush=True)
    print(f"{count} calls: {campaign.told()}; {len(campaign.findings)} findings")
    return int(bool(campaign.findings))


if __name__ == "__main__":
    sys.exit(main())

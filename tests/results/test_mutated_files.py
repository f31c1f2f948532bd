"""Files of every kind, mutated, are read or refused, and do no harm; runs of every kind are stopped and lose nothing.

`EDGEWISE_MUTATIONS` and `EDGEWISE_STOPS` say how many; docs/security.md has the figures of large runs.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT

pytest.importorskip("pyarrow")
pytest.importorskip("safetensors")
MUTATIONS, STOPS = int(os.environ.get("EDGEWISE_MUTATIONS", "96")), int(os.environ.get("EDGEWISE_STOPS", "20"))


def run(script, *arguments):
    """A script of tests/support in a process of its own, which forks before anything has threads."""
    support = ROOT / "tests" / "support"
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{support}", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    line = [sys.executable, str(support / script), *map(str, arguments)]
    return subprocess.run(line, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is not measured here")
def test_mutated_files_of_every_kind_are_read_or_refused_and_do_no_harm(tmp_path):
    done = run("mutated_files.py", tmp_path / "files", MUTATIONS, 5)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["findings"] == []
    assert len(found["kinds"]) >= 20
    assert found["files"] >= MUTATIONS
    assert sum(one.get("refused", 0) for one in found["kinds"].values()) > MUTATIONS / 3


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="file systems are mounted")
def test_runs_of_every_kind_that_are_stopped_lose_nothing_and_leave_nothing(tmp_path):
    done = run("stopped_runs.py", tmp_path / "runs", STOPS, 5)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["stops"] >= STOPS
    assert all(one["completed"] > 0 for one in found["runs"].values())

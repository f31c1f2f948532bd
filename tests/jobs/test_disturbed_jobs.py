"""Jobs that are killed, lose workers or scheduler, find the disk full or shards damaged, and end as if nothing had happened."""

import json
import os
import subprocess
import sys

import pytest

from places import ROOT

pytest.importorskip("pyarrow")
pytest.importorskip("distributed")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["killed", "processes", "workers", "scheduler", "disk", "damage"])
def test_a_disturbed_job_has_the_shards_of_an_undisturbed_one(tmp_path, kind):
    script = ROOT / "tests" / "support" / "job_disturbances.py"
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{script.parent}", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    if kind == "disk" and (sys.platform != "linux" or os.geteuid() != 0):
        pytest.skip("a file system of its own needs the right to mount")
    done = subprocess.run(
        [sys.executable, script, tmp_path / "place", "2000", "3", "1", kind],
        env=environment, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    if kind == "disk" and "mount" in done.stderr and "returned non-zero" in done.stderr:
        pytest.skip("this machine does not let us mount")
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert said[kind]["shards"] == 10
    assert any(said[kind].get(name) for name in ("kills", "lost", "times full", "damaged"))
    assert kind == "damage" or said[kind]["noted twice"] == 0

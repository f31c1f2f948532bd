"""The real command, stopped by real signals at random moments: forked from a process that has loaded the library.

    python tests/support/kills.py FOLDER KILLS SEED [--quiet] -- explain --data ... --out result.parquet

runs the command in FOLDER until it has been stopped KILLS times; whenever it ends by itself, its results are compared with
those of a first, undisturbed run, byte by byte, and it begins anew. Prints one JSON document.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TIMES = ("written", "seconds")
"""What a manifest says about the clock."""


def contents(folder: Path, names: list[str]) -> dict[str, object]:
    """Every file that is not an input, by name; folders too, and of manifests what does not depend on the clock."""
    found: dict[str, object] = {}
    for path in sorted(folder.iterdir()):
        if path.name in names:
            continue
        if path.is_dir():
            found[path.name] = sorted(str(inside) for inside in path.rglob("*"))
        elif path.suffix == ".json":
            found[path.name] = {k: v for k, v in json.loads(path.read_text()).items() if k not in TIMES}
        else:
            found[path.name] = path.read_bytes()
    return found


def start(folder: Path, arguments: list[str], log: Path) -> int:
    """The command in a child of this process."""
    child = os.fork()
    if child:
        return child
    try:
        os.chdir(folder)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["edgewise", *arguments]
        sys.path.insert(0, "")
        from edgewise.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 99
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(child: int, seconds: float) -> int | None:
    """The status of a child that ended within some seconds; None if it still runs."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def try_kills(folder: Path, kills: int, seed: int, arguments: list[str]) -> dict[str, object]:
    """Kill until it has been done so often; what happened."""
    inputs = [path.name for path in folder.iterdir()]
    log, draw = folder.parent / f"{folder.name}.log", random.Random(seed)
    begun = time.monotonic()
    assert ended(start(folder, arguments, log), 3600) == 0, log.read_text()
    usual, expected = time.monotonic() - begun, contents(folder, inputs)
    counts: Counter[str] = Counter()
    clean(folder, inputs)
    while sum(counts[one.name] for one in SIGNALS) < kills:
        child = start(folder, arguments, log)
        code = ended(child, draw.random() * usual * draw.choice((0.2, 0.5, 1.1)))
        if code is None:
            kill = draw.choice(SIGNALS)
            os.kill(child, kill)
            code = ended(child, 600)
            counts[kill.name] += 1
            if code in (-signal.SIGKILL, -signal.SIGTERM, 130):  # SIGTERM before the command has begun just ends it
                counts["resumed"] += "Resuming" in log.read_text()
                counts["stages"] += any(folder.glob(".*/stage"))
                continue
        assert code == 0, (code, log.read_text())
        finish(folder, inputs, expected, counts)
    code = ended(start(folder, arguments, log), 3600)
    assert code == 0, log.read_text()
    finish(folder, inputs, expected, counts)
    return {"usual_seconds": round(usual, 1), "files": sorted(expected), **counts}


def finish(folder: Path, inputs: list[str], expected: dict[str, object], counts: Counter[str]) -> None:
    """Compare with the undisturbed run, and begin anew."""
    found = contents(folder, inputs)
    assert sorted(found) == sorted(expected), (sorted(found), sorted(expected))
    differing = [name for name in expected if found[name] != expected[name]]
    assert not differing, differing
    counts["completed"] += 1
    clean(folder, inputs)


def clean(folder: Path, inputs: list[str]) -> None:
    """Remove everything but the inputs."""
    for path in folder.iterdir():
        if path.name not in inputs:
            assert path.is_file(), path
            path.unlink()


if __name__ == "__main__":
    import edgewise.api.explain
    import edgewise.api.write_page
    import edgewise.cli.app
    import edgewise.cli.session  # noqa: F401

    place, often, number = Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3])
    print(json.dumps(try_kills(place, often, number, sys.argv[sys.argv.index("--") + 1 :])))

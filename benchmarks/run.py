"""The program: which jobs, how long, and where the figures go."""

import argparse
import json
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import floor, large, report, scaling, sizes
from benchmarks.cache import cache_folder
from benchmarks.data import NoDataError
from benchmarks.jobs import Job, jobs
from benchmarks.machine import describe
from benchmarks.timing import measure

HERE = Path(__file__).parent
EXTRAS = ("scaling", "sizes", "floor", "large")
FULL_ONLY = ("sizes", "floor", "large")
QUICK_SECONDS, QUICK_ROUNDS, QUICK_SCALING = 145.0, 3, 12.0  # imports included; the limit is three minutes
ROW_SECONDS, ROUNDS = 40.0, 7
LEAST = 1.0  # seconds: a row that would get less is left out


def main(begin: float) -> int:
    options = _options()
    names = [job.name for job in jobs()]
    if options.list:
        print(*names, *EXTRAS, sep="\n")
        return 0
    chosen = [job for job in jobs() if _is_chosen(job.name, options.only) and (job.quick or not options.quick)]
    extras = [name for name in EXTRAS if _is_chosen(name, options.only) and not (options.quick and name in FULL_ONLY)]
    if not chosen and not extras:
        print(
            f"No job is called {' or '.join(options.only)}; known are {', '.join([*names, *EXTRAS])}.", file=sys.stderr
        )
        return 2
    results: dict[str, Any] = {"machine": describe(), "rows": _run_rows(chosen, extras, options, begin)}
    if "scaling" in extras:
        results["scaling"] = _run_scaling(options)
    if "sizes" in extras:
        results["sizes"] = _run_sizes()
    if "floor" in extras:
        results["floor"] = {"rate": floor.rate(), "rows": list(floor.rows())}
    if "large" in extras:
        results["large"] = _run_large(options.nodes)
    _finish(results, names, options)
    print(f"{time.perf_counter() - begin:.0f} s in all")
    failed = [name for name, row in results["rows"].items() if "error" in row]
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Edgewise beside its peers, in one process, on one thread."
    )
    parser.add_argument("--quick", action="store_true", help="under three minutes: smaller samples, fewer rounds")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="jobs, or the beginnings of their names")
    parser.add_argument("--list", action="store_true", help="the names of the jobs")
    parser.add_argument(
        "--seconds", type=float, default=ROW_SECONDS, help=f"for each row, without --quick ({ROW_SECONDS:.0f})"
    )
    parser.add_argument(
        "--rounds", type=int, default=None, help=f"at most, for each row ({ROUNDS}, quick {QUICK_ROUNDS})"
    )
    parser.add_argument("--nodes", type=int, default=10_000, help="of the large graph (10000)")
    parser.add_argument("--out", type=Path, default=None, help="JSON file (benchmarks/results.json; none with --quick)")
    parser.add_argument("--write-readme", action="store_true", help="rewrite the figures in benchmarks/README.md")
    return parser.parse_args()


def _is_chosen(name: str, wanted: Sequence[str]) -> bool:
    return not wanted or any(name == word or name.startswith(word) for word in wanted)


def _run_rows(
    chosen: Sequence[Job], extras: Sequence[str], options: argparse.Namespace, begin: float
) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    deadline = begin + QUICK_SECONDS - (QUICK_SCALING if "scaling" in extras else 0)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    for number, job in enumerate(chosen):
        print(f"{job.name} …", end=" ", flush=True)
        start = time.perf_counter()
        rows[job.name] = _run_row(job, _time_for(chosen[number:], deadline, options), rounds)
        shown = report.cells(job.name, rows[job.name])
        print(f"{shown[2] or shown[0]}  ({time.perf_counter() - start:.1f} s)", flush=True)
    return rows


def _time_for(waiting: Sequence[Job], deadline: float, options: argparse.Namespace) -> Callable[[], float]:
    """Seconds for the first of the waiting jobs, asked once its model is there: with --quick, a fair part of what is left."""

    def seconds() -> float:
        if not options.quick:
            return options.seconds * waiting[0].weight
        return (deadline - time.perf_counter()) * waiting[0].weight / sum(job.weight for job in waiting)

    return seconds


def _run_row(job: Job, seconds: Callable[[], float], rounds: int) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if seconds() < LEAST:
                return {"title": job.title, "error": "left out, the time is over"}
            case = job.make()
            return report.row_of(job, case, measure(case, max(seconds(), LEAST), rounds), describe()["date"])
    except NoDataError as error:
        return {"title": job.title, "error": f"left out, {error}"}
    except Exception as error:  # one row must not take the others with it
        traceback.print_exc()
        return {"title": job.title, "error": f"failed, {type(error).__name__}: {error}"}


def _run_scaling(options: argparse.Namespace) -> dict[str, Any]:
    sizes = scaling.QUICK_SIZES if options.quick else scaling.SIZES
    points = []
    for point in scaling.run(sizes, QUICK_SCALING if options.quick else 4 * options.seconds):
        points.append(point)
        rate = point.seconds / max(point.size, 1) * 1e9
        print(
            f"scaling: {point.edges:>9,} edges, {point.family:<17}, {point.targets:>7,} targets, "
            f"{point.size:>11,} edges of computation graphs, {point.seconds:8.3f} s, {rate:7.0f} ns each",
            flush=True,
        )
    picture = cache_folder() / "scaling-quick.png" if options.quick else HERE / "scaling.png"
    scaling.plot(points, picture)
    print(f"scaling: {picture}")
    return {"points": [asdict(point) for point in points], "exponent": scaling.exponent(points)}


def _run_sizes() -> dict[str, Any]:
    """Cost by size: the points, and their picture."""
    points = list(sizes.run(rounds=3))
    sizes.plot(points, HERE / "sizes.png")
    return {"points": [asdict(point) for point in points], "exponents": sizes.exponents(points)}


def _run_large(nodes: int) -> dict[str, Any]:
    """In a process of its own, for its peak memory."""
    command = [sys.executable, "-m", "benchmarks.large", "--json", "--nodes", str(nodes)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent, check=False)
    if done.returncode:
        return {"sentence": f"failed: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'killed'}"}
    row = json.loads(done.stdout.splitlines()[-1])
    return {**row, "sentence": large.sentence(row)}


def _finish(results: dict[str, Any], names: Sequence[str], options: argparse.Namespace) -> None:
    if results["rows"]:
        print("", report.text_table(results["rows"]), report.NOTES, sep="\n")
    if "scaling" in results:
        print(report.scaling_sentence(results["scaling"]))
    if "large" in results:
        print(f"large: {results['large']['sentence']}")
    file = options.out or (None if options.quick else HERE / "results.json")
    if file is not None:
        results = report.merge(file, results, names)
        report.save(file, results)
        print(f"Saved in {file}")
    if options.write_readme:
        report.write_readme(HERE / "README.md", report.markdown(results, HERE))

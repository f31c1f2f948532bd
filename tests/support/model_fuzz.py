"""Ten thousand random models: each answer is right, refused, or warned of by its cause.

    make fuzz-models                                                   # ten thousand; MODELS=… START=… WORKERS=…
    python tests/support/model_fuzz.py --start 500000 --seconds 3600   # others, for an hour
    python tests/support/model_fuzz.py --seed 1234                     # one of them, with its source

Each seed is a model, a graph and some targets (`drawn_cases.py`), whose answers are compared with the slow twin
(`slow_twin.py`). It fails if an answer is wrong without a word, if anything but an `EdgewiseError` is raised, or if more than
5 % of the models that hold to the contract are refused.
"""

import argparse
import os
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from random import Random
from typing import Any

import torch
from torch import Tensor

import edgewise as ew
from drawn_cases import DrawnCase, draw_case, draw_index
from edgewise.graph import cut
from edgewise.model import feature_products
from edgewise.program import kernels, small_reverse
from edgewise.program.layers import affine
from model_grammar import STOPS
from slow_twin import difference, drop, gradient

MOST_REFUSED = 0.05
"""The share of models within the contract that may be refused."""
RIGHT, REFUSED, WARNED, WRONG, FOREIGN = "right", "refused", "warned", "WRONG", "FOREIGN"
LONG, BROKEN = "too long", "does not run"
_ORDER = [BROKEN, RIGHT, LONG, WARNED, REFUSED, FOREIGN, WRONG]
LOWERED = 0.3
"""How likely each of the limits is lowered."""
SECONDS = 5.0
"""A question that takes longer is given up and counted: every edge of a model that is not local is a pass of its own."""


class TooLongError(BaseException):
    """A question took longer than `SECONDS`; no `Exception`, so that nobody answers for it."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise in the main thread after some seconds."""

    def ring(_signal: int, _frame: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)  # again, where the first was swallowed
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Finding:
    """How one question about a case went."""

    question: str
    outcome: str
    text: str = ""
    excused: bool = False
    """Whether the refusal is no loss: the construct may be refused."""


@dataclass
class Report:
    """How a case went."""

    seed: int
    task: str
    kind: str
    within: bool
    tags: list[str]
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    source: str = ""

    @property
    def outcome(self) -> str:
        return max((f.outcome for f in self.findings), key=_ORDER.index, default=BROKEN)

    @property
    def refused(self) -> bool:
        """Refused although it holds to the contract."""
        return self.within and any(f.outcome == REFUSED and not f.excused for f in self.findings)


# What is asked, and what is right #####################################################################################


@dataclass
class Check:
    """A comparison of answers with the twin: what differs, in words."""

    case: DrawnCase
    random: Random
    wrong: list[str] = field(default_factory=list)

    def function(self, position: int, index: list[Any]):
        place = index[position]
        target = (
            self.case.targets[self.case.index.index(place)] if place in self.case.index else self.case.chosen(place)
        )
        return self.case.function(place, target), target

    def graph(self, place: Any):
        return self.case.doubles[place] if self.case.task == "graph" else self.case.doubles[0]

    def tolerance(self, scale: float) -> float:
        double = self.case.graphs[0].x.dtype == torch.float64
        return (1e-6 if double else 5e-3) * scale + (1e-10 if double else 1e-5)

    def same(self, what: str, got: float, want: float, scale: float) -> bool:
        if abs(got - want) <= self.tolerance(max(scale, abs(want))):
            return True
        self.wrong.append(f"{what}: {got:.6g}, not {want:.6g} (scale {scale:.3g})")
        return False

    def head(self, why, place: Any, function, target: int, graph) -> float:
        """The value and the class; the scale of the number."""
        value = float(function().detach())
        if self.case.task != "link" and why.target != target:
            self.wrong.append(f"{place}: class {why.target}, not {target}")
        self.same(f"{place}: value", float(why.value), value, abs(value))
        return abs(value)


def check_gradient(check: Check, why, place: Any, function, level: str) -> None:
    """All scores by autograd, or some by differences where gradients stop or disagree."""
    graph, twin = check.graph(place), check.case.twin
    ones = twin.ones(graph)
    if not ones.size(1):
        return  # without columns nothing shows how many layers there are
    got = why.scores.double() if level == "layer" else why.scores.double()[None]
    shape = ones.shape if level == "layer" else (1, ones.size(1))
    if got.shape != shape:
        check.wrong.append(f"{place}: scores of shape {list(got.shape)}, not {list(shape)}")
        return
    want = gradient(function, ones)
    want = want if level == "layer" else want.sum(0, keepdim=True)
    scale = max(float(want.abs().max()) if want.numel() else 0.0, 1e-3 * abs(float(why.value)))
    far = (got - want).abs() > check.tolerance(scale)
    stopped = bool(check.case.sketch.tags & STOPS)
    asked = far.nonzero().tolist()[:3]
    if stopped and got.numel():
        asked += _places(check, want)
    for row, column in asked:
        _by_difference(
            check, f"{place}: {level} gradient [{row}, {column}]", function, ones, (row, column), level, got, scale
        )


def _by_difference(check, what, function, ones, entry, level, got, scale) -> None:
    """Between the slopes on both sides, at two step sizes: elsewhere it is wrong."""
    place = entry if level == "layer" else (slice(None), entry[1])
    number = float(got[entry])
    slopes = [slope for step in (1e-4, 1e-5, 1e-6) for slope in difference(function, ones, place, step)]
    slack = 5e-5 * max(scale, max(map(abs, slopes))) + 1e-8 + check.tolerance(scale)
    if not min(slopes) - slack <= number <= max(slopes) + slack:
        check.wrong.append(f"{what}: {number:.6g}, not {slopes[2]:.6g} to {slopes[3]:.6g}")


def _places(check: Check, want: Tensor) -> list[list[int]]:
    """Some entries that matter, and one of any kind."""
    moving = want.nonzero().tolist()
    some = check.random.sample(moving, min(3, len(moving)))
    return [*some, [check.random.randrange(size) for size in want.shape]]


def check_occlusion(check: Check, why, place: Any, function, level: str) -> None:
    """Some messages set to 0."""
    graph, twin = check.graph(place), check.case.twin
    ones = twin.ones(graph)
    if not ones.size(1):
        return
    got = why.scores if level == "layer" else why.scores[None]
    if got.shape != (ones.size(0) if level == "layer" else 1, ones.size(1)):
        check.wrong.append(f"{place}: scores of shape {list(got.shape)}")
        return
    if not got.numel():
        return
    moving = gradient(function, ones)
    moving = moving if level == "layer" else moving.abs().sum(0, keepdim=True)
    scale = max(float(got.double().abs().max()), 1e-3 * abs(float(why.value)))
    for row, column in _places(check, moving):
        entry = (row, column) if level == "layer" else (slice(None), column)
        want = drop(function, ones, entry)
        check.same(f"{place}: {level} occlusion [{row}, {column}]", float(got[row, column]), want, scale)


def check_features(check: Check, why, place: Any, function, method: str) -> None:
    """Gradient times input by autograd or differences, occlusion of some features."""
    x = check.graph(place).x
    of_x = lambda value: function(x=value)  # noqa: E731
    got = why.scores.to_dense().double() if why.scores.is_sparse else why.scores.double()
    if got.shape != x.shape:
        check.wrong.append(f"{place}: features of shape {list(got.shape)}, not {list(x.shape)}")
        return
    slope = gradient(of_x, x)
    scale = max(float(got.abs().max()), 1e-3 * abs(float(why.value)))
    if method == "occlusion":
        for row, column in _places(check, slope):
            want = drop(of_x, x, (row, column))
            check.same(f"{place}: feature occlusion [{row}, {column}]", float(got[row, column]), want, scale)
        return
    factor = x if method == "gradient_x_input" else torch.ones_like(x)
    far = ((got - slope * factor).abs() > check.tolerance(scale)).nonzero().tolist()[:3]
    far += _places(check, slope) if check.case.sketch.tags & STOPS else []
    for row, column in far:
        _feature_slope(
            check,
            f"{place}: {method} [{row}, {column}]",
            of_x,
            x,
            (row, column),
            float(factor[row, column]),
            got,
            scale,
        )


def _feature_slope(check, what, of_x, x, entry, factor, got, scale) -> None:
    slopes = [factor * slope for step in (1e-4, 1e-5, 1e-6) for slope in difference(of_x, x, entry, step)]
    slack = 5e-5 * max(scale, max(map(abs, slopes))) + 1e-8 + check.tolerance(scale)
    if not min(slopes) - slack <= float(got[entry]) <= max(slopes) + slack:
        check.wrong.append(f"{what}: {float(got[entry]):.6g}, not {slopes[2]:.6g} to {slopes[3]:.6g}")


def check_set(case: DrawnCase, random: Random, index: list[Any], found, one: Callable) -> list[str]:
    """Each target of a set, or of some where there are many."""
    check = Check(case, random)
    for position, place in enumerate(index):
        function, target = check.function(position, index)
        why = found[position]
        check.head(why, place, function, target, check.graph(place))
        one(check, why, place, function)
    return check.wrong


# Questions ############################################################################################################


def questions(case: DrawnCase, random: Random) -> Iterator[tuple[str, bool, Callable[[], list[str]]]]:
    """A name, whether a gradient is asked for, and what asks and compares: three of them for each case."""
    given = {"task": case.task, "of": case.of, **case.options}

    def ask() -> Any:
        return ew.Question(case.model, case.data, case.index, **given)

    def edges(method: str, level: str, index: list[Any], **more: Any) -> list[str]:
        found = ew.explain(case.model, case.data, index, method=method, level=level, **given, **more)
        return check_set(case, random, index, found, partial(_of_edges, method=method, level=level))

    def held_edges(method: str, level: str) -> list[str]:
        return check_set(
            case,
            random,
            case.index,
            ask().explain(method=method, level=level),
            partial(_of_edges, method=method, level=level),
        )

    def moved(method: str, level: str) -> list[str]:
        index = draw_index(random, case, 2)
        question = ask()
        question.explain(method=method, level=level)
        found = question.of(index).explain(method=method, level=level)
        return check_set(case, random, index, found, partial(_of_edges, method=method, level=level))

    def features(method: str) -> list[str]:
        found = ew.features(case.model, case.data, case.index, method=method, **given)
        return check_set(case, random, case.index, found, partial(_of_features, method=method))

    level = random.choice(["layer", "layer", "input"])
    back = case.index[::-1]
    slow = case.kind == "large" and not case.sketch.is_local
    first = "gradient" if slow else random.choice(["gradient", "occlusion"])
    yield f"{first} {level}", first == "gradient", partial(edges, first, level, case.index)
    other = "occlusion" if first == "gradient" else "gradient"
    several = random.randint(1, 3)
    more = [
        (f"{other} {level}, held", other == "gradient", partial(held_edges, other, level)),
        (f"{other} {level}, backwards", other == "gradient", partial(edges, other, level, back, batch_size=several)),
        (f"{first} {level}, moved", first == "gradient", partial(moved, first, level)),
        (f"{other} {level}, moved", other == "gradient", partial(moved, other, level)),
        ("features gradient_x_input", True, partial(features, "gradient_x_input")),
        ("features occlusion", False, partial(features, "occlusion")),
    ]
    if slow:  # each edge and each feature is a pass of its own
        more = [entry for entry in more if "occlusion" not in entry[0]]
    yield from random.sample(more, 2)


def _index(case: DrawnCase, index: list[Any]) -> Any:
    return index


def _of_edges(check, why, place, function, *, method: str, level: str) -> None:
    (check_gradient if method == "gradient" else check_occlusion)(check, why, place, function, level)


def _of_features(check, why, place, function, *, method: str) -> None:
    check_features(check, why, place, function, method)


# Runs #################################################################################################################


def runs(case: DrawnCase) -> str:
    """ "" if the user's model runs and returns what the twin returns; else why not."""
    random_ = "noise" in case.sketch.tags
    for position, place in enumerate(case.index):
        graph = case.double(position).clone()
        if case.task == "link":
            graph.edge_label_index = torch.tensor(place).view(2, 1)
        arguments = [graph[name] for name in case.sketch.arguments]
        with torch.no_grad():
            model = case.model if case.graphs[0].x.dtype == torch.float64 else case.model.double()
            out = model(graph.x, graph.edge_index, *arguments)
            _, want = case.twin.run(graph, case.sketch.arguments)
        model.to(case.graphs[0].x.dtype)
        if not out.isfinite().all():
            return "not finite"
        if not random_ and not torch.equal(out, want):
            return "the twin returns something else"
    return ""


_LIMITS = (
    (feature_products, "_WORTH_IT"),
    (kernels, "_WORTH_IT"),
    (cut, "_SMALL"),
    (small_reverse, "_FEW"),
    (affine, "_FEW"),
)
"""Sizes from which on another way is taken: to keep products, to compile, to cut, to leave numpy, to make sparse matrices."""


@contextmanager
def drawn_limits(random: Random) -> Iterator[None]:
    """Drawn graphs are small: some of the ways that large ones take are taken at any size."""
    chosen = [(module, name, getattr(module, name)) for module, name in _LIMITS if random.random() < LOWERED]
    try:
        for module, name, _ in chosen:
            setattr(module, name, 0)
        yield
    finally:
        for module, name, limit in chosen:
            setattr(module, name, limit)


def run_case(seed: int) -> Report:
    """A case, asked and compared."""
    start = time.perf_counter()
    case = draw_case(seed)
    within = not case.outside
    report = Report(seed, case.task, case.kind, within, sorted(case.sketch.tags), source=case.sketch.source)
    try:
        broken = runs(case)
    except Exception as error:
        broken = f"{type(error).__name__}: {error}"
    if broken:
        report.findings.append(Finding("itself", BROKEN, broken))
        return report
    random = Random(seed + 1)
    with drawn_limits(Random(seed + 2)):
        for name, sloped, function in questions(case, random):
            report.findings.append(_asked(case, name, sloped, function))
    report.seconds = time.perf_counter() - start
    return report


def _asked(case: DrawnCase, name: str, sloped: bool, function: Callable[[], list[str]]) -> Finding:
    excused = bool(case.outside) or (sloped and bool(case.sketch.tags & STOPS))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with limited(SECONDS):
                wrong = function()
        except TooLongError:
            return Finding(name, LONG)
        except ew.EdgewiseError as error:
            return Finding(name, REFUSED, f"{type(error).__name__}: {error}", excused)
        except Exception as error:
            place = "".join(traceback.format_exception(error)[-4:])
            return Finding(name, FOREIGN, f"{type(error).__name__}: {error}\n{place}")
    if not wrong and "noise" not in case.sketch.tags:
        return Finding(name, RIGHT)
    causes = [str(w.message) for w in said if _excuses(case, w)]
    text = "; ".join(wrong[:4])
    return Finding(
        name, WARNED if causes else WRONG, f"{text}  {causes}" if causes else text or "answered, but it is random"
    )


def _excuses(case: DrawnCase, warning: warnings.WarningMessage) -> bool:
    """Whether a warning names the cause of what is wrong; "slower and right" excuses nothing."""
    kind, text = warning.category.__name__, str(warning.message)
    if kind == "OutputWarning":
        return case.sketch.output.startswith("odd")
    return kind == "LocalityWarning" and "too large" in text


# The table ############################################################################################################


def table(reports: list[Report]) -> str:
    """Outcomes by construct, and the refusals by their words."""
    counts: dict[str, Counter] = {}
    for report in reports:
        for tag in [*report.tags, f"task {report.task}", f"size {report.kind}", "all"]:
            counts.setdefault(tag, Counter())[report.outcome] += 1
    lines = [f"{'construct':32}" + "".join(f"{name:>14}" for name in _ORDER)]
    for tag, count in sorted(counts.items()):
        lines.append(f"{tag:32}" + "".join(f"{count[name] or '':>14}" for name in _ORDER))
    words = Counter(
        f.text.split("\n")[0][:110] for r in reports for f in r.findings if r.refused and f.outcome == REFUSED
    )
    lines += ["", "refused within the contract:"] + [f"{count:6}  {text}" for text, count in words.most_common(25)]
    return "\n".join(lines)


def summary(reports: list[Report]) -> tuple[str, bool]:
    """The last lines, and whether the run passed."""
    running = [r for r in reports if r.outcome != BROKEN]
    bad = [r for r in running if r.outcome in (WRONG, FOREIGN)]
    within = [r for r in running if r.within]
    refused = [r for r in within if r.refused]
    share = len(refused) / max(len(within), 1)
    text = (
        f"{len(reports)} models, {len(running)} run by themselves, {len(bad)} wrong or foreign, "
        f"{len(refused)} of {len(within)} within the contract refused ({100 * share:.1f} %)"
    )
    return text, not bad and share <= MOST_REFUSED


def told(report: Report) -> str:
    """One case in full."""
    lines = [f"seed {report.seed}: {report.outcome} ({report.task}, {report.kind}; {', '.join(report.tags)})"]
    lines += [f"  {f.question}: {f.outcome} {f.text}" for f in report.findings]
    return "\n".join([*lines, report.source])


def _quietly(seed: int) -> Report:
    torch.set_num_threads(1)
    try:
        return run_case(seed)
    except Exception as error:
        text = f"the test itself: {type(error).__name__}: {error}\n{''.join(traceback.format_exception(error)[-3:])}"
        return Report(seed, "?", "?", within=True, tags=["test"], findings=[Finding("itself", FOREIGN, text)])


def run_many(seeds: range, workers: int) -> Iterator[Report]:
    """In order."""
    if workers == 1:
        yield from map(_quietly, seeds)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_quietly, seeds, chunksize=20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=int, default=10000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--seed", type=int, help="one model, with its source")
    asked = parser.parse_args()
    if asked.seed is not None:
        report = run_case(asked.seed)
        print(told(report))
        return int(report.outcome in (WRONG, FOREIGN))
    reports, start = [], time.perf_counter()
    for report in run_many(range(asked.start, asked.start + asked.models), asked.workers):
        reports.append(report)
        if report.outcome in (WRONG, FOREIGN):
            print(told(report), flush=True)
        if report.within and report.refused:
            texts = dict.fromkeys(f.text.split("\n")[0][:160] for f in report.findings if f.outcome == REFUSED)
            print(f"refused: seed {report.seed}: {'; '.join(texts)}", file=sys.stderr, flush=True)
        if len(reports) % 100 == 0:
            print(f"… {summary(reports)[0]}, {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        if time.perf_counter() - start > asked.seconds:
            break
    text, passed = summary(reports)
    print(f"{table(reports)}\n\n{text}, {time.perf_counter() - start:.0f} s")
    return int(not passed)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())

"""Several methods on one question: who takes part, each run with every seed, and what a method refuses noted.

`read_methods` turns what a user writes into `Contender`s; `run_all` runs them at one level and gives a `Runs` for each.
`ew.compare` and `ew.write_page` both stand on it; `pairwise.py` then compares the runs.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from edgewise.algorithms.method_settings import read_settings
from edgewise.algorithms.registry import Method, check_level, find_method
from edgewise.arguments import shown, whole_number
from edgewise.contract import fits
from edgewise.errors import EdgewiseError, SettingError
from edgewise.results.explanation_set import ExplanationSet

YARDSTICKS = ("random", "full")
"""Methods that know nothing: agreement with them shows what chance, or a constant, would reach."""


@dataclass(frozen=True)
class Contender:
    """A method with its settings, and its name in tables."""

    label: str
    method: Method
    settings: Mapping[str, Any]

    @property
    def draws(self) -> bool:
        """Whether another seed gives other scores."""
        return self.method.seeded


RunOne: TypeAlias = Callable[[Contender, str, int], ExplanationSet]
"""(contender, level, seed) ↦ the explanations of all targets."""


@dataclass(frozen=True)
class Runs:
    """One method at one level: a set of explanations for each seed, or the error with which it refused."""

    label: str
    sets: tuple[ExplanationSet, ...]
    seconds: float
    """For one seed, on average; NaN if the method did not run."""
    refusal: EdgewiseError | None = None

    @property
    def absent(self) -> str:
        """Why the method did not run; empty if it did."""
        return "" if self.refusal is None else str(self.refusal)


def run_all(
    contenders: Sequence[Contender],
    level: str,
    seeds: tuple[int, ...],
    run: RunOne,
    advance: Callable[[float], Any],
) -> list[Runs]:
    """Run every method at one level: once if it draws no random numbers, otherwise with every seed.

    A method that has no such level, or that cannot explain this model, raises an `EdgewiseError`; that is noted in its
    `Runs`, so that the others still run. Follow up with `check_some_ran`.
    """
    found = []
    for contender in contenders:
        own = seeds if contender.draws else seeds[:1]
        found.append(_runs_of(contender, level, own, run))
        advance(len(own))
    return found


def _runs_of(contender: Contender, level: str, seeds: tuple[int, ...], run: RunOne) -> Runs:
    begin = time.perf_counter()
    try:
        sets = tuple(run(contender, level, seed) for seed in seeds)
    except EdgewiseError as error:
        return Runs(contender.label, (), float("nan"), error)
    return Runs(contender.label, sets, (time.perf_counter() - begin) / len(seeds))


def check_some_ran(runs: Sequence[Runs]) -> None:
    """Raise the first refusal if every method refused: then there is nothing to show."""
    refusals = [one.refusal for one in runs if one.refusal is not None]
    if refusals and len(refusals) == len(runs):
        raise refusals[0]


# --- Reading what the user wrote ---------------------------------------------------------------------------------------


def read_methods(methods: Any, *, yardsticks: bool, least: int = 2) -> list[Contender]:
    """The methods of `compare`, checked, each with a label of its own; the yardsticks come last unless they were named.

    >>> found = read_methods(["gradient", ("shapley", {"samples": 5}), ("shapley", {"samples": 9})], yardsticks=True)
    >>> [one.label for one in found]
    ['gradient', 'shapley(samples=5)', 'shapley(samples=9)', 'random', 'full']
    """
    if isinstance(methods, (str, Method)) or not fits("Iterable[Any]", methods):
        raise SettingError(
            f"`methods` must be a list, got {shown(methods)}. Use methods=['gradient', 'occlusion'], for example."
        )
    pairs = [_read_method(given) for given in methods]
    named = [method.name for method, _ in pairs]
    if yardsticks:
        pairs += [(find_method(name, "input"), {}) for name in YARDSTICKS if name not in named]
    if len(pairs) < least:
        word = "two methods" if least == 2 else "one method"
        raise SettingError(
            f"`methods` must have at least {word}, got {len(pairs)}. Use methods=['gradient', 'full'], for example."
        )
    labels = _labels(pairs)
    return [Contender(label, *pair) for label, pair in zip(labels, pairs, strict=True)]


def _read_method(given: Any) -> tuple[Method, dict[str, Any]]:
    """One entry of `methods`: a name, a `Method` of `ew.from_pyg`, or either of them with its settings."""
    name, settings = given, {}
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != 2 or not isinstance(given[1], Mapping):
            raise SettingError(
                f"An entry of `methods` must be a name, an object that ew.from_pyg made, or a pair of one of them and its "
                f"settings, got {shown(given)}. Use ('gnn_explainer', {{'epochs': 50}}), for example."
            )
        name, settings = given[0], dict(given[1])
    method = find_method(name, "input")
    read_settings(method, settings)
    return method, settings


def _labels(pairs: list[tuple[Method, dict[str, Any]]]) -> list[str]:
    """The names; with settings where a name comes twice, and with a number where that is not enough."""
    names = Counter(method.name for method, _ in pairs)
    labels = [method.name if names[method.name] == 1 else _full_label(method, given) for method, given in pairs]
    seen: Counter[str] = Counter()
    for position, label in enumerate(labels):
        seen[label] += 1
        labels[position] = label if seen[label] == 1 else f"{label} #{seen[label]}"
    return labels


def _full_label(method: Method, settings: Mapping[str, Any]) -> str:
    """The name with its settings in brackets; PyG's explainers describe themselves."""
    if method.outside is not None:
        return str(method.notes.get("algorithm", method.name))
    given = ", ".join(f"{name}={value}" for name, value in settings.items())
    return f"{method.name}({given})" if given else method.name


def read_levels(levels: Any) -> tuple[str, ...]:
    """One level, or several in the given order; each once.

    >>> read_levels("layer"), read_levels(["input", "layer", "input"])
    (('layer',), ('input', 'layer'))
    """
    given = (levels,) if isinstance(levels, str) else tuple(levels)
    for level in given:
        check_level(level)
    if not given:
        raise SettingError(
            "`levels` must name at least one level, got none. Use levels=['input', 'layer'], for example."
        )
    return tuple(dict.fromkeys(given))


def read_seeds(seeds: Any) -> tuple[int, ...]:
    """Several integers in the given order, each once.

    >>> read_seeds(range(3))
    (0, 1, 2)
    """
    given = () if isinstance(seeds, (int, str)) or not isinstance(seeds, Iterable) else tuple(seeds)
    if not given:
        raise SettingError(
            f"`seeds` must be a list of integers, at least one, got {shown(seeds)}. Use range(3) or [0, 1, 2]."
        )
    return tuple(dict.fromkeys(whole_number("seeds", seed) for seed in given))

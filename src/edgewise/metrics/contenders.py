"""Who is compared: names, names with settings, and explainers of PyG, each with a label of its own."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgewise.algorithms.registry import Method, check_level, find_method, read_settings
from edgewise.errors import SettingError

YARDSTICKS = ("random", "full")


@dataclass(frozen=True)
class Contender:
    """A method with its settings, and what the table calls it."""

    label: str
    method: Method
    settings: Mapping[str, Any]

    @property
    def draws(self) -> bool:
        """Whether another seed gives other scores."""
        return self.method.seeded


def read_methods(methods: Any, *, yardsticks: bool, least: int = 2) -> list[Contender]:
    """The methods of `compare`, checked; the yardsticks come last unless they were named."""
    if isinstance(methods, (str, Method)) or not isinstance(methods, Iterable):
        raise SettingError(f"methods is {methods!r}; needed is a list, such as ['gradient', 'occlusion'].")
    pairs = [_read(given) for given in methods]
    named = [method.name for method, _ in pairs]
    if yardsticks:
        pairs += [(find_method(name, "input"), {}) for name in YARDSTICKS if name not in named]
    if len(pairs) < least:
        word = "two" if least == 2 else "one"
        raise SettingError(
            f"methods has {len(pairs)} entries; needed are at least {word}, such as ['gradient', 'full']."
        )
    labels = _labels(pairs)
    return [Contender(label, *pair) for label, pair in zip(labels, pairs, strict=True)]


def _read(given: Any) -> tuple[Method, dict[str, Any]]:
    name, settings = given, {}
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != 2 or not isinstance(given[1], Mapping):
            raise SettingError(
                f"A method is {given!r}; needed is a name, an object that ew.from_pyg made, or a pair such as "
                f"('gnn_explainer', {{'epochs': 50}})."
            )
        name, settings = given[0], dict(given[1])
    method = find_method(name, "input")
    read_settings(method, settings)
    return method, settings


def _labels(pairs: list[tuple[Method, dict[str, Any]]]) -> list[str]:
    """The names; with settings where a name comes twice, and with a number where that is not enough."""
    names = Counter(method.name for method, _ in pairs)
    labels = [method.name if names[method.name] == 1 else _in_full(method, given) for method, given in pairs]
    seen: Counter[str] = Counter()
    for position, label in enumerate(labels):
        seen[label] += 1
        labels[position] = label if seen[label] == 1 else f"{label} #{seen[label]}"
    return labels


def _in_full(method: Method, settings: Mapping[str, Any]) -> str:
    if method.outside is not None:
        return str(method.notes.get("algorithm", method.name))
    given = ", ".join(f"{name}={value}" for name, value in settings.items())
    return f"{method.name}({given})" if given else method.name


def read_levels(levels: Any) -> tuple[str, ...]:
    """Checked, each once."""
    given = (levels,) if isinstance(levels, str) else tuple(levels)
    for level in given:
        check_level(level)
    if not given:
        raise SettingError("levels is empty; needed is 'input', 'layer', or both.")
    return tuple(dict.fromkeys(given))


def read_seeds(seeds: Any) -> tuple[int, ...]:
    """Checked, each once."""
    if isinstance(seeds, (int, str)) or not isinstance(seeds, Iterable):
        raise SettingError(f"seeds is {seeds!r}; needed are several whole numbers, such as range(3) or [0, 1, 2].")
    given = tuple(seeds)
    if not given or not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in given):
        raise SettingError(f"seeds is {seeds!r}; needed are whole numbers, at least one, such as range(3).")
    return tuple(dict.fromkeys(given))

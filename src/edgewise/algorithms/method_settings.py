"""The settings of a method, as a user gives them: defaults filled in, unknown names and impossible values refused."""

from collections.abc import Mapping
from typing import Any

from edgewise.algorithms.registry import Method
from edgewise.arguments import did_you_mean, real_number, shown, whole_number
from edgewise.errors import SettingError

_OPTIONS = (
    "index",
    "level",
    "target",
    "task",
    "mode",
    "of",
    "forward",
    "top",
    "memory",
    "batch_size",
    "device",
    "seed",
)
"""Arguments of `explain`: a misspelt one arrives here as an unknown setting."""
_POSITIVE_WHOLE = ("epochs", "steps", "samples", "passes", "max_nodes", "beam")
_NUMBERS = ("lr", "edge_size", "edge_ent", "epsilon", "w_base")
_RANGES: dict[str, dict[str, Any]] = {
    "lr": {"above": 0, "at_most": 1000},
    "edge_size": {"at_least": 0},
    "edge_ent": {"at_least": 0},
}
_SWITCHES = ("undirected",)


def read_settings(method: Method, given: Mapping[str, Any]) -> dict[str, Any]:
    """The method's settings with defaults filled in; unknown names and impossible values are refused.

    >>> from edgewise.algorithms.registry import methods
    >>> read_settings(methods()["shapley"], {"samples": 10})
    {'samples': 10}
    >>> read_settings(methods()["shapley"], {"sample": 10})
    Traceback (most recent call last):
    edgewise.errors.SettingError: shapley has no setting 'sample'. Its settings are: samples. Did you mean 'samples'?
    """
    for name in given:
        if name not in method.settings:
            known = ", ".join(method.settings) or "none"
            hint = did_you_mean(name, [*method.settings, *_OPTIONS])
            raise SettingError(f"{method.name} has no setting {name!r}. Its settings are: {known}.{hint}")
    settings = {**method.settings, **given}
    return {name: _checked(name, value, method.settings[name]) for name, value in settings.items()}


def _checked(name: str, value: Any, default: Any) -> Any:
    """A setting's value, refused if it is outside its range; settings without a range are checked by their method."""
    if name in _POSITIVE_WHOLE:
        return whole_number(name, value, at_least=1, such_as=default)
    if name in _NUMBERS:
        number = real_number(name, value, such_as=default, **_RANGES.get(name, {}))
        value = value if abs(number) < 2**53 else number  # torch takes no larger int for a number
    if name in _SWITCHES and not isinstance(value, bool):
        raise SettingError(f"`{name}` must be True or False, got {shown(value)}. Use {name}={default}, for example.")
    if name == "w_base" and value == 1:
        raise SettingError(
            f"`w_base` must differ from 1, the weight that every edge has already, got {shown(value)}. "
            f"Use w_base={default}, for example."
        )
    return value

"""Settings of a result: a mapping that cannot be changed, but can be pickled (as `MappingProxyType` cannot)."""

from collections.abc import Iterator, Mapping
from typing import Any

from edgewise.errors import InputError


class Settings(Mapping[str, Any]):
    """What an explanation was made with: read it like a dict; `dict(settings)` gives a copy to change.

    >>> Settings({"epochs": 100})["epochs"]
    100
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Settings({self._values})"


def refuse_other_layers(ours: int, theirs: int, settings: Mapping[str, Any]) -> None:
    """Layer scores with different numbers of rows cannot be compared; `settings` are those of the older result.

    Raises:
        InputError: If the two numbers of layers differ.
    """
    if ours != theirs:
        calls = settings.get("layers") == "calls"
        why = (
            "Edgewise 0.1.0 wrote a row for each message-passing call, not for each layer of the depth"
            if calls
            else ("they belong to models of different depth")
        )
        raise InputError(
            f"Layer scores must have the same number of layers to be compared, got {ours} and {theirs} ({why}). "
            f"{'Explain again with this version, or compare' if calls else 'Compare'} at level='input'."
        )

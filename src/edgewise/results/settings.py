"""Settings of a result: a mapping that cannot be changed, but can be pickled (as `MappingProxyType` cannot)."""

from collections.abc import Iterator, Mapping
from typing import Any


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

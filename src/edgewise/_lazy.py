"""Names that load on first use (PEP 562): a package stays cheap to import, whatever it offers."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, where: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package whose names live in other modules.

    `where` maps a name to its module; a name whose module ends in that very name is the module itself.

    >>> get, names = lazy_names("edgewise", {"Settings": "edgewise.results.explanation", "errors": "edgewise.errors"})
    >>> get("Settings").__name__, get("errors").__name__, names()
    ('Settings', 'edgewise.errors', ['Settings', 'errors'])
    """

    def get(name: str) -> Any:
        """Import the module of a name, and keep the value in the package, so that it is looked up only once."""
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(where)}.")
        module = import_module(where[name])
        value = module if where[name] == f"{package}.{name}" else getattr(module, name)
        sys.modules[package].__dict__[name] = value
        return value

    return get, lambda: sorted(where)

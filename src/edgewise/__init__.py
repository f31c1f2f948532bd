"""Edgewise: which edges, in which layer, along which walks, made a graph neural network predict what it predicted.

Names load on first use (PEP 562), so that importing the package, and the command line's help, need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    # explaining
    "explain": "edgewise.explaining",
    "methods": "edgewise.algorithms.registry",
    "best_subgraph": "edgewise.algorithms.linear_search",
    "from_pyg": "edgewise.adapters.explainers",
    "heal": "edgewise.adapters.healing",
    "Score": "edgewise.score",
    # results
    "Explanation": "edgewise.explanation",
    "ExplanationSet": "edgewise.collection",
    "load": "edgewise.storage",
    "similarity": "edgewise.metrics.agreement",
    # errors
    "EdgewiseError": "edgewise.errors",
    "InputError": "edgewise.errors",
    "ModelError": "edgewise.errors",
    "SettingError": "edgewise.errors",
    "FileError": "edgewise.errors",
    "MissingExtraError": "edgewise.errors",
    "LocalityWarning": "edgewise.errors",
}

__all__ = ["__version__", *_WHERE]

if TYPE_CHECKING:
    from edgewise.adapters.explainers import from_pyg as from_pyg
    from edgewise.adapters.healing import heal as heal
    from edgewise.algorithms.linear_search import best_subgraph as best_subgraph
    from edgewise.algorithms.registry import methods as methods
    from edgewise.collection import ExplanationSet as ExplanationSet
    from edgewise.errors import EdgewiseError as EdgewiseError
    from edgewise.errors import FileError as FileError
    from edgewise.errors import InputError as InputError
    from edgewise.errors import LocalityWarning as LocalityWarning
    from edgewise.errors import MissingExtraError as MissingExtraError
    from edgewise.errors import ModelError as ModelError
    from edgewise.errors import SettingError as SettingError
    from edgewise.explaining import explain as explain
    from edgewise.explanation import Explanation as Explanation
    from edgewise.metrics.agreement import similarity as similarity
    from edgewise.score import Score as Score
    from edgewise.storage import load as load


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'edgewise' has no attribute {name!r}; it has {', '.join(_WHERE)}.")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""Edgewise: which edges, in which layer, along which walks, made a graph neural network predict what it predicted.

Names load on first use (PEP 562), so that importing the package, and the command line's help, need no torch.
"""

from typing import TYPE_CHECKING

from edgewise.lazy import lazy_names

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
    "write_page": "edgewise.report.page.writing",
    # trust
    "check": "edgewise.trust.report",
    "compare": "edgewise.metrics.comparison",
    "Comparison": "edgewise.metrics.compared",
    # walks
    "walks": "edgewise.walk.asking",
    "walk_relevance": "edgewise.walk.relevance",
    "subgraph_relevance": "edgewise.walk.relevance",
    "Walk": "edgewise.walk.results",
    "WalkSet": "edgewise.walk.results",
    # errors
    "EdgewiseError": "edgewise.errors",
    "InputError": "edgewise.errors",
    "ModelError": "edgewise.errors",
    "SettingError": "edgewise.errors",
    "FileError": "edgewise.errors",
    "MissingExtraError": "edgewise.errors",
    "LocalityWarning": "edgewise.errors",
}

_PACKAGES = {"metrics": "edgewise.metrics", "trust": "edgewise.trust", "datasets": "edgewise.datasets"}

__all__ = ["__version__", *_WHERE]

if TYPE_CHECKING:
    from edgewise import datasets as datasets
    from edgewise import metrics as metrics
    from edgewise import trust as trust
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
    from edgewise.metrics.compared import Comparison as Comparison
    from edgewise.metrics.comparison import compare as compare
    from edgewise.report.page.writing import write_page as write_page
    from edgewise.score import Score as Score
    from edgewise.storage import load as load
    from edgewise.trust.report import check as check
    from edgewise.walk.asking import walks as walks
    from edgewise.walk.relevance import subgraph_relevance as subgraph_relevance
    from edgewise.walk.relevance import walk_relevance as walk_relevance
    from edgewise.walk.results import Walk as Walk
    from edgewise.walk.results import WalkSet as WalkSet

__getattr__, __dir__ = lazy_names(__name__, _WHERE | _PACKAGES)

"""Edgewise: which edges, in which layer, along which walks, made a graph neural network predict what it predicted.

Names load on first use (PEP 562), so that importing the package, and the command line's help, need no torch.
"""

from typing import TYPE_CHECKING

from edgewise._lazy import lazy_names

__version__ = "0.2.0"

_WHERE = {
    # explaining
    "explain": "edgewise.api.explain",
    "features": "edgewise.api.features",
    "counterfactual": "edgewise.api.counterfactual",
    "methods": "edgewise.algorithms.registry",
    "register_method": "edgewise.algorithms.own_methods",
    "best_subgraph": "edgewise.algorithms.eig_search",
    "subgraph_x": "edgewise.algorithms.subgraph_x",
    "shapley_interactions": "edgewise.algorithms.interactions",
    "from_pyg": "edgewise.adapters.from_pyg",
    "heal": "edgewise.adapters.heal",
    "EdgewiseExplainer": "edgewise.adapters.to_pyg",
    "Score": "edgewise.score",
    "Question": "edgewise.api.question",
    "GraphStore": "edgewise.store.graph_store",
    # results
    "Explanation": "edgewise.results.explanation",
    "ExplanationSet": "edgewise.results.explanation_set",
    "Counterfactual": "edgewise.results.counterfactual_set",
    "CounterfactualSet": "edgewise.results.counterfactual_set",
    "FeatureScores": "edgewise.results.feature_scores",
    "FeatureSet": "edgewise.results.feature_scores",
    "load": "edgewise.results.storage",
    "similarity": "edgewise.metrics.cosine",
    "write_page": "edgewise.api.write_page",
    "show_versions": "edgewise.api.show_versions",
    "molecule": "edgewise.report.molecule",
    # trust
    "check": "edgewise.api.check",
    "compare": "edgewise.api.compare",
    "Comparison": "edgewise.results.comparison",
    "leaderboard": "edgewise.api.leaderboard",
    # walks
    "walks": "edgewise.api.walks",
    "walk_relevance": "edgewise.api.walk_relevance",
    "subgraph_relevance": "edgewise.api.walk_relevance",
    "Walk": "edgewise.results.walk_set",
    "WalkSet": "edgewise.results.walk_set",
    # errors
    "EdgewiseError": "edgewise.errors",
    "InputError": "edgewise.errors",
    "ModelError": "edgewise.errors",
    "SettingError": "edgewise.errors",
    "NoRoomError": "edgewise.errors",
    "FileError": "edgewise.errors",
    "ClusterError": "edgewise.errors",
    "MissingExtraError": "edgewise.errors",
    "StaleQuestionError": "edgewise.errors",
    "IncompleteWarning": "edgewise.errors",
    "KinkWarning": "edgewise.errors",
    "LocalityWarning": "edgewise.errors",
    "OutputWarning": "edgewise.errors",
    "VersionWarning": "edgewise.errors",
}

_PACKAGES = {name: f"edgewise.{name}" for name in ("metrics", "trust", "datasets", "jobs")}

__all__ = ["__version__", *_WHERE]

if TYPE_CHECKING:
    from edgewise import datasets as datasets
    from edgewise import jobs as jobs
    from edgewise import metrics as metrics
    from edgewise import trust as trust
    from edgewise.adapters.from_pyg import from_pyg as from_pyg
    from edgewise.adapters.heal import heal as heal
    from edgewise.adapters.to_pyg import EdgewiseExplainer as EdgewiseExplainer
    from edgewise.algorithms.eig_search import best_subgraph as best_subgraph
    from edgewise.algorithms.interactions import shapley_interactions as shapley_interactions
    from edgewise.algorithms.own_methods import register_method as register_method
    from edgewise.algorithms.registry import methods as methods
    from edgewise.algorithms.subgraph_x import subgraph_x as subgraph_x
    from edgewise.api.check import check as check
    from edgewise.api.compare import compare as compare
    from edgewise.api.counterfactual import counterfactual as counterfactual
    from edgewise.api.explain import explain as explain
    from edgewise.api.features import features as features
    from edgewise.api.leaderboard import leaderboard as leaderboard
    from edgewise.api.question import Question as Question
    from edgewise.api.show_versions import show_versions as show_versions
    from edgewise.api.walk_relevance import subgraph_relevance as subgraph_relevance
    from edgewise.api.walk_relevance import walk_relevance as walk_relevance
    from edgewise.api.walks import walks as walks
    from edgewise.api.write_page import write_page as write_page
    from edgewise.errors import ClusterError as ClusterError
    from edgewise.errors import EdgewiseError as EdgewiseError
    from edgewise.errors import FileError as FileError
    from edgewise.errors import IncompleteWarning as IncompleteWarning
    from edgewise.errors import InputError as InputError
    from edgewise.errors import KinkWarning as KinkWarning
    from edgewise.errors import LocalityWarning as LocalityWarning
    from edgewise.errors import MissingExtraError as MissingExtraError
    from edgewise.errors import ModelError as ModelError
    from edgewise.errors import NoRoomError as NoRoomError
    from edgewise.errors import OutputWarning as OutputWarning
    from edgewise.errors import SettingError as SettingError
    from edgewise.errors import StaleQuestionError as StaleQuestionError
    from edgewise.errors import VersionWarning as VersionWarning
    from edgewise.metrics.cosine import similarity as similarity
    from edgewise.report.molecule import molecule as molecule
    from edgewise.results.comparison import Comparison as Comparison
    from edgewise.results.counterfactual_set import Counterfactual as Counterfactual
    from edgewise.results.counterfactual_set import CounterfactualSet as CounterfactualSet
    from edgewise.results.explanation import Explanation as Explanation
    from edgewise.results.explanation_set import ExplanationSet as ExplanationSet
    from edgewise.results.feature_scores import FeatureScores as FeatureScores
    from edgewise.results.feature_scores import FeatureSet as FeatureSet
    from edgewise.results.storage import load as load
    from edgewise.results.walk_set import Walk as Walk
    from edgewise.results.walk_set import WalkSet as WalkSet
    from edgewise.score import Score as Score
    from edgewise.store.graph_store import GraphStore as GraphStore

__getattr__, __dir__ = lazy_names(__name__, _WHERE | _PACKAGES)

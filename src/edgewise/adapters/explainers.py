"""PyG's explainers inside Edgewise: `explain(..., method=ew.from_pyg(GNNExplainer()))`.

They write into the model that they explain, and into themselves. So every target gets a copy of both; yours stay as they are.
"""

import copy
from collections.abc import Iterator
from typing import Any

from torch_geometric.explain import ExplainerAlgorithm, PGExplainer

from edgewise.adapters.running import Run, name_of
from edgewise.algorithms.registry import Method
from edgewise.algorithms.scores import SparseScores
from edgewise.errors import SettingError
from edgewise.problem import Problem


def from_pyg(algorithm: ExplainerAlgorithm, *, train: Any = None) -> Method:
    """A PyG explainer as a method of `explain`: GNNExplainer, PGExplainer, GraphMask, Attention, Captum, or your own.

    It runs as in PyG, on the whole graph, one target after another, each on a fresh copy of the model and of the algorithm; a
    copy that an earlier run of PyG had poisoned is healed first. Learned masks keep PyG's objective whatever `of`;
    `CaptumExplainer` attributes the explained number itself. The random state is set to `seed + index` before each target.

    Args:
        algorithm: The explainer; it is left as it is.
        train: For a `PGExplainer` that is not trained yet: the nodes (or graphs) to train it on, as an `index` of `explain`.

    Returns:
        An object for `explain(..., method=...)`, at input level.

    >>> import torch; from torch_geometric.data import Data; from torch_geometric.explain import GNNExplainer
    >>> from torch_geometric.nn import GCN; from edgewise.explaining import explain
    >>> data = Data(x=torch.randn(4, 2), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    >>> why = explain(GCN(2, 4, 2, 3), data, index=3, method=from_pyg(GNNExplainer(epochs=5)))
    >>> why.method, why.scores.shape
    ('GNNExplainer', torch.Size([3]))
    """
    if not isinstance(algorithm, ExplainerAlgorithm):
        raise SettingError(
            f"algorithm is {algorithm!r}; needed is an object such as torch_geometric.explain.GNNExplainer(epochs=100)."
        )
    if train is not None and not isinstance(algorithm, PGExplainer):
        raise SettingError(f"train is for PGExplainer; {type(algorithm).__name__} needs no training. Leave it out.")
    # PyG keeps some coefficients on the class, where the next one that is made changes them.
    coefficients = dict(getattr(algorithm, "coeffs", {}))

    def outside(problem: Problem, *, seed: int) -> Iterator[tuple[int, SparseScores]]:
        own: Any = copy.deepcopy(algorithm)
        if coefficients:
            own.coeffs = dict(coefficients)
        if isinstance(own, PGExplainer):
            _trained(problem, own, train, seed)
        return Run(problem, own, seed).results()

    return Method(
        name_of(algorithm),
        None,
        "as in PyG, one target after another",
        "torch_geometric.explain",
        levels=("input",),
        seeded=True,
        outside=outside,
        notes={"algorithm": _description(algorithm, coefficients)},
    )


def _description(algorithm: ExplainerAlgorithm, coefficients: dict[str, Any]) -> str:
    """Its name and its numbers, for the settings of the explanations."""
    own = {key: value for key, value in vars(algorithm).items() if not key.startswith("_")}
    own = {**own, **own.get("kwargs", {}), **coefficients}
    plain = {key: value for key, value in own.items() if isinstance(value, (int, float, str))}
    numbers = ", ".join(f"{key}={value}" for key, value in plain.items() if key not in ("training", "is_hetero"))
    return f"{name_of(algorithm)}({numbers})"


def _trained(problem: Problem, algorithm: PGExplainer, train: Any, seed: int) -> None:
    """Train a (copied) PGExplainer if that was asked for, or say what to type."""
    done, wanted = algorithm._curr_epoch + 1, algorithm.epochs
    if train is not None and done > 0:
        raise SettingError(f"The PGExplainer is trained already ({done} epochs). Leave train out.")
    if train is not None:
        Run(problem, algorithm, seed).train(train)
    elif done < wanted:
        raise SettingError(
            f"The PGExplainer is not trained ({done} of {wanted} epochs). Say on which targets to train it: "
            f"ew.from_pyg(algorithm, train=range(100)), or train it first with algorithm.train(epoch, model, x, ...)."
        )

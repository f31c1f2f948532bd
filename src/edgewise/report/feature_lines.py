"""Features in words: the strongest of a node, with names, values and scores, for pictures and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgewise.errors import InputError
from edgewise.text import plain_text

if TYPE_CHECKING:
    from edgewise.report.appearance import Nodes
    from edgewise.report.scene import Picture
    from edgewise.results.feature_scores import FeatureScores

OF_A_NODE = 3
"""Features that are told of a node."""
NEIGHBOURS = 3
"""Nodes besides the explained ones whose features are told."""


def feature_sentence(found: FeatureScores | None, index: Any, shown: Picture, nodes: Nodes) -> str:
    """Lines about the features of the explained node (or both ends) and of the strongest other nodes of a picture."""
    if found is None:
        return ""
    if found.index != index or found.stored is None:
        raise InputError(
            f"`features` must be scores of features of the explained target {index}, got {found!r}. Use "
            f"ew.features(model, data, {index}), by any method but cam and grad_cam."
        )
    strength = found.per_node().abs().cpu()
    explained = list(dict.fromkeys(spot[1] for spot in (shown.root, shown.other) if spot is not None))
    others = [node for node in shown.nodes if node not in explained and float(strength[node]) > 0]
    others.sort(key=lambda node: -float(strength[node]))
    lines = [
        f"{_named(nodes, node)}: {told}" for node in explained + others[:NEIGHBOURS] if (told := of_node(found, node))
    ]
    return "\nStrongest features:\n" + "\n".join(lines) if lines else ""


def of_node(found: FeatureScores, node: int, most: int = OF_A_NODE) -> str:
    """The strongest features of one node: `age = 31 (+0.4), debt = 2 (−0.1)`; without values if they are not known."""
    return ", ".join(
        f"{plain_text(name)}{'' if value is None else f' = {value:.4g}'} ({score:+.3g})".replace("-", "−")
        for score, name, value in found.of_node(node, most)
    )


def _named(nodes: Nodes, node: int) -> str:
    return " ".join(part for part in (nodes.inside(node), nodes.outside(node)) if part)

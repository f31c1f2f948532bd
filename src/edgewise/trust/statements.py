"""In words: which statements of the paper hold for this model, why, and so which fast method can replace a slow one.

Each statement is a function of `Facts` (the findings of a report, and a few properties read off them) that returns a
`Statement`: the claim, the verdict, why, and what follows.
"""

from dataclasses import dataclass

from edgewise.text import counted
from edgewise.trust.activity import RECTIFIERS
from edgewise.trust.report import AskedQuestion, LayerFindings, Number, SoftmaxFindings, Statement

ROUNDING = {"float64": 1e-9}
"""Relative differences up to this are rounding; other types have `_COARSE_ROUNDING`."""
_COARSE_ROUNDING = 1e-4
NEARLY = 0.05
"""A statement holds nearly if a share misses by no more than this, or a cosine is at least 1 minus it."""


@dataclass(frozen=True)
class Facts:
    """The findings that statements are judged by, and properties of the model that follow from them."""

    question: AskedQuestion
    layers: tuple[LayerFindings, ...]
    whole: LayerFindings
    softmax: SoftmaxFindings

    @property
    def rounding(self) -> float:
        """The largest relative difference that counts as rounding, for the model's type of numbers."""
        return ROUNDING.get(self.question.dtype, _COARSE_ROUNDING)

    def at_most(self, numbers: list[Number], bound: float) -> bool:
        """Whether all numbers that are known have a magnitude of at most `bound`."""
        return all(abs(number.value) <= bound for number in numbers if number.known)

    @property
    def linear(self) -> bool:
        """Whether, in every layer that has edges, gradients are occlusions and halves of the edges add up."""
        return self.at_most([n for layer in self.layers for n in (layer.difference, layer.unevenness)], self.rounding)

    @property
    def unbiased(self) -> bool | None:
        """Whether z is 0 with any one layer silenced; None if that cannot be measured in some layer."""
        constants = [layer.constant for layer in self.layers]
        if not self.at_most(constants, self.rounding):
            return False
        return True if all(number.known for number in constants) else None

    @property
    def activations(self) -> list[str]:
        """The activation functions of all layers, each once."""
        return list(dict.fromkeys(name for layer in self.layers for name in layer.activations))

    def verdict(self, numbers: list[Number]) -> str:
        """The verdict on numbers that should be 0: "holds", "nearly", "fails", or "open" if some are not known."""
        if not any(number.known for number in numbers):
            return "open"
        if self.at_most(numbers, self.rounding):
            return "holds" if all(number.known for number in numbers) else "open"
        return "nearly" if self.at_most(numbers, NEARLY) else "fails"

    def beyond_rectified_sums(self) -> list[str]:
        """The parts of the model that the paper's network of sums and rectifiers does not have."""
        others = [name for name in self.activations if name not in RECTIFIERS]
        return [*others, *(f"{kind} (not a plain sum of messages)" for kind in self.question.other_layers)]


def statements(facts: Facts) -> tuple[Statement, ...]:
    """The statements of the paper, in its order, each judged by the facts."""
    every = (_one_layer, _no_flips, _completeness, _occlusion, _sensitivity, _expectation, _eig, _walks, _goat)
    return tuple(make(facts) for make in every)


_NOT, _NOTHING = "does not apply", "There is nothing to choose from."
_STANDS_IN = "positive_gradient (1 backward pass) can replace gnn_explainer (a pass per epoch)"


def _penalty(facts: Facts) -> str:
    """How much GNNExplainer's size penalty and the softmax can change that."""
    softmax = facts.softmax
    if not softmax.weak.known:
        return ""
    return (
        f" This leaves its penalties aside: {softmax.weak:.1%} of the supporting edges pull less than its size penalty pushes, "
        f"and {softmax.saturated:.1%} of the targets are saturated."
    )


def _follows(facts: Facts) -> str:
    """A sentence about what GNNExplainer follows, where that is not the explained number."""
    if facts.question.mode == "binary" or facts.question.of == "log_prob" or not facts.softmax.opposed.known:
        return ""
    return (
        f" With several classes GNNExplainer follows the log-probability, whose gradient has the other sign on "
        f"{facts.softmax.opposed:.1%} of the edges (of='log_prob' asks about it)."
    )


def _one_layer(facts: Facts) -> Statement:
    """Proposition 1: one linear layer."""
    claim = "In one linear layer GNNExplainer keeps the edges with a positive gradient."
    question, name = facts.question, "Proposition 1"
    if question.mode == "regression":
        return Statement(name, claim, _NOT, "A regression has no label to keep.", "Use gradient or occlusion.")
    if question.num_layers > 1:
        return Statement(name, claim, _NOT, f"The model has {question.num_layers} layers.", "See Proposition 2.")
    if not facts.layers[0].difference.known:
        return Statement(name, claim, "open", "There is no edge.", _NOTHING)
    if not facts.linear:
        return Statement(name, claim, _NOT, "The layer is not linear in its edge weights.", "See Proposition 2.")
    verdict = "holds" if question.mode == "binary" else "nearly"
    return Statement(name, claim, verdict, f"One layer, linear.{_follows(facts)}", f"{_STANDS_IN}.{_penalty(facts)}")


def _no_flips(facts: Facts) -> Statement:
    """Proposition 2: judged by the sampled flips at input level."""
    claim = "Where an edge's own gradient keeps its sign on [0, 1], GNNExplainer's best weight is 1 (positive) or 0 (negative)."
    flips, name = facts.whole.flips, "Proposition 2"
    if facts.question.mode == "regression":
        return Statement(name, claim, _NOT, "A regression has no label to keep.", "Use gradient or occlusion.")
    if not flips.share.known:
        return Statement(name, claim, "open", f"Nothing can flip: {flips.share.reason}.", _NOTHING)
    proved = (
        f"{flips.kept:.1%} are proved to keep theirs"
        if flips.kept.known
        else f"nothing is proved ({flips.kept.reason})"
    )
    why = (
        f"{flips.share:.2%} of {flips.edges} gradients change their sign when their edge alone is weakened (sampled); "
        f"{proved}. "
        f"When all edges are weakened together, {flips.together:.1%} of the gradient does.{_follows(facts)}"
    )
    so = f"{_STANDS_IN} on {1 - flips.share.value:.1%} of the edges; ew.compare measures how well.{_penalty(facts)}"
    verdict = facts.verdict([flips.share])
    return Statement(name, claim, "partly" if verdict == "fails" else verdict, why, so)


def _completeness(facts: Facts) -> Statement:
    """Proposition 3: judged by the gap of every layer."""
    claim = "The gradients of a layer's edges (and self edges) sum to the explained number."
    missing = [layer.missing for layer in facts.layers]
    verdict = facts.verdict(missing)
    if verdict == "holds":
        homogeneous = "" if facts.linear else " The paper asks for a linear network; without biases ReLU is enough."
        so = "The gradients and self scores of a layer can be read as shares of the explained number."
        return Statement("Proposition 3", claim, verdict, f"They do, in every layer.{homogeneous}", so)
    unknown = [layer.missing.reason for layer in facts.layers if not layer.missing.known]
    known = [layer for layer in facts.layers if layer.missing.known]
    parts = [
        f"in layer {layer.layer} {layer.missing:.1%} is missing (biases and skips {layer.constant:+.1%}, the rest "
        f"{layer.rest:+.1%})"
        for layer in sorted(known, key=lambda layer: -layer.missing.value)[:1]
    ]
    why = "; ".join([*parts, *dict.fromkeys(unknown)])
    return Statement("Proposition 3", claim, verdict, f"{why[:1].upper()}{why[1:]}.", "Read scores as sensitivities.")


def _occlusion(facts: Facts) -> Statement:
    """Corollary 1: judged by the difference of gradient and occlusion, edge by edge; otherwise by their cosine."""
    claim = "In a linear network layerwise gradients are layerwise occlusions."
    differences = [layer.difference for layer in facts.layers]
    if not any(number.known for number in differences):
        return Statement("Corollary 1", claim, "open", "There is no edge.", _NOTHING)
    if facts.at_most(differences, facts.rounding):
        why = "Every edge's gradient is its occlusion, up to rounding."
        so = "gradient (1 backward pass) can replace occlusion (a pass per edge and layer) at level='layer'."
        return Statement("Corollary 1", claim, "holds", why, so)
    cosines = {layer.layer: layer.cosine.mean() for layer in facts.layers if layer.cosine.undefined < len(layer.cosine)}
    if not cosines:
        return Statement("Corollary 1", claim, "open", "No edge changes anything.", _NOTHING)
    layer, least = min(cosines.items(), key=lambda item: item[1])
    verdict = "nearly" if least >= 1 - NEARLY else "fails"
    why = f"The network is not linear; the mean cosine of the two is at least {least:.3f} (layer {layer})."
    so = "gradient can replace occlusion for a ranking." if verdict == "nearly" else "Use occlusion where it matters."
    return Statement("Corollary 1", claim, verdict, why, so)


def _sensitivity(facts: Facts) -> Statement:
    """Sensitivity-n: judged by random halves of every layer's edges."""
    claim = "In a linear network dropping any edges of one layer costs the sum of their scores."
    numbers = [layer.unevenness for layer in facts.layers]
    verdict = facts.verdict(numbers)
    known = [number.value for number in numbers if number.known]
    if not known:
        return Statement("Sensitivity-n", claim, "open", f"{numbers[0].reason.capitalize()}.", _NOTHING)
    why = f"Dropping random halves of a layer's edges misses that sum by {max(known):.1%} of the change in the worst layer."
    good = verdict in ("holds", "nearly")
    so = "Gradients of one layer may be added up." if good else "Measure sets of edges with ew.metrics.fidelity."
    return Statement("Sensitivity-n", claim, verdict, why, so)


def _expectation(facts: Facts) -> Statement:
    """Corollary 2: whether its assumptions hold; the expectation itself is not measured."""
    claim = "If every ReLU is on with the same chance ρ, z is expected to be ρ^(L−1) times that of the network without ReLU."
    name, so = "Corollary 2", "It is about averages over patterns: no method follows from it for one target."
    others = facts.beyond_rectified_sums() + ([] if facts.unbiased is not False else ["biases or skips"])
    if others:
        return Statement(
            name, claim, _NOT, f"It is about sums and ReLU alone; this model also has {', '.join(others)}.", so
        )
    rates = [layer.rate.value for layer in facts.layers if layer.rate.known]
    if not rates:
        return Statement(name, claim, "holds", "There is no activation, so ρ is 1.", so)
    fixed = max(layer.fixed.value for layer in facts.layers if layer.fixed.known)
    why = f"ρ runs from {min(rates):.2f} to {max(rates):.2f} over the layers, and up to {fixed:.0%} of the units never switch."
    return Statement(name, claim, "open", why, so)


def _eig(facts: Facts) -> Statement:
    """Proposition 4: an identity of definitions."""
    claim = "EiG-Search's edge score with base weight 0 is occlusion."
    so = "occlusion and eig_search give the same ranking."
    return Statement("Proposition 4", claim, "holds", "For any model: both measure what z loses without the edge.", so)


def _walks(facts: Facts) -> Statement:
    """Theorem 1: judged by the number of layers, since Algorithm 1 keeps one prefix per node."""
    claim = "Algorithm 1 finds the most relevant walk exactly."
    question, most = facts.question, 2 if facts.question.task == "node" else 1
    if question.bypass:
        why = (
            f"Parts of the network bypass later layers ({'; '.join(question.bypass)}), so walks do not carry all of z."
        )
        return Statement("Theorem 1", claim, _NOT, why, "Read ew.walks beside edge scores, not instead of them.")
    if question.no_walks:
        return Statement("Theorem 1", claim, _NOT, question.no_walks, "ew.walks and LRP refuse this model.")
    if question.num_layers <= most:
        why = f"It is exact for up to {counted(most, 'layer')} on {question.task} tasks; this model has {question.num_layers}."
        return Statement("Theorem 1", claim, "holds", why, "ew.walks(search='dag') can replace search='exact'.")
    why = (
        f"It keeps one prefix per node, which is exact for up to {counted(most, 'layer')} on {question.task} tasks; this model "
        f"has {question.num_layers} (the paper's proof overlooks this)."
    )
    return Statement("Theorem 1", claim, "fails", why, "Use ew.walks(search='exact'), which proves its result.")


def _goat(facts: Facts) -> Statement:
    """Proposition 5: whether the model is one of sums and rectifiers, for which it is stated."""
    claim = "The walk part of GOAt is a sum over walks, each divided by its number of factors."
    others = facts.beyond_rectified_sums()
    if facts.question.no_walks and not facts.question.bypass:
        return Statement("Proposition 5", claim, _NOT, facts.question.no_walks, "ew.walks and LRP refuse this model.")
    if others:
        why = f"It is stated for sums and ReLU alone; this model also has {', '.join(others)}."
        return Statement(
            "Proposition 5", claim, _NOT, why, "goat_walks holds patterns and attention fixed: read it that way."
        )
    so = "lrp with rule='gradient' sums the same walks, undivided, in one pass; goat_walks goes through every walk."
    return Statement("Proposition 5", claim, "holds", "Sums of messages, and nothing but rectifiers between them.", so)

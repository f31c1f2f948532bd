"""In words: which statements of the paper hold for this model here, why, and so which cheap method stands in for a dear one."""

from dataclasses import dataclass

from edgewise.trust.activity import RECTIFIERS
from edgewise.trust.report import AskedQuestion, LayerFindings, Number, SoftmaxFindings, Statement

# --- What the statements of the paper are about, read off the findings -------------------------------------------------


ROUNDING = {"float64": 1e-9}
_COARSE_ROUNDING = 1e-4
NEARLY = 0.05
"""What is called nearly: a share that misses by no more than this, a cosine of at least 1 minus it."""


@dataclass(frozen=True)
class Facts:
    """What the statements are about."""

    question: AskedQuestion
    layers: tuple[LayerFindings, ...]
    whole: LayerFindings
    softmax: SoftmaxFindings

    @property
    def rounding(self) -> float:
        """Up to here, a relative difference is rounding."""
        return ROUNDING.get(self.question.dtype, _COARSE_ROUNDING)

    def at_most(self, numbers: list[Number], bound: float) -> bool:
        """Whether all numbers that are known are so small."""
        return all(abs(number.value) <= bound for number in numbers if number.known)

    @property
    def linear(self) -> bool:
        """Whether, in every layer that has edges, gradients are occlusions and halves of the edges add up."""
        return self.at_most([n for layer in self.layers for n in (layer.difference, layer.unevenness)], self.rounding)

    @property
    def unbiased(self) -> bool | None:
        """Whether nothing is left of z if a layer says nothing; None if that cannot be asked in some layer."""
        constants = [layer.constant for layer in self.layers]
        if not self.at_most(constants, self.rounding):
            return False
        return True if all(number.known for number in constants) else None

    @property
    def activations(self) -> list[str]:
        """Every kind once."""
        return list(dict.fromkeys(name for layer in self.layers for name in layer.activations))

    def verdict(self, numbers: list[Number]) -> str:
        """Of numbers that should be 0: "holds", "nearly", "fails", or "open" if some are not known."""
        if not any(number.known for number in numbers):
            return "open"
        if self.at_most(numbers, self.rounding):
            return "holds" if all(number.known for number in numbers) else "open"
        return "nearly" if self.at_most(numbers, NEARLY) else "fails"

    def beyond_rectified_sums(self) -> list[str]:
        """What the model has that the paper's network of sums and rectifiers has not."""
        others = [name for name in self.activations if name not in RECTIFIERS]
        return [*others, *(f"{kind} (not a plain sum of messages)" for kind in self.question.other_layers)]


# --- The whole ---------------------------------------------------------------------------------------------------------


def statements(facts: Facts) -> tuple[Statement, ...]:
    """Those of the paper, in its order."""
    every = (_one_layer, _no_flips, _completeness, _occlusion, _sensitivity, _expectation, _eig, _walks, _goat)
    return tuple(make(facts) for make in every)


_NOT, _NOTHING = "does not apply", "There is nothing to choose from."
_STANDS_IN = "positive_gradient (1 backward pass) stands in for gnn_explainer (a pass per epoch)"


def _penalty(facts: Facts) -> str:
    softmax = facts.softmax
    if not softmax.weak.known:
        return ""
    return (
        f" Its penalties aside: {softmax.weak:.1%} of the supporting edges pull less than its size penalty pushes, "
        f"and {softmax.saturated:.1%} of the targets are saturated."
    )


def _follows(facts: Facts) -> str:
    """What GNNExplainer follows where that is not the explained number."""
    if facts.question.mode == "binary" or facts.question.of == "log_prob" or not facts.softmax.opposed.known:
        return ""
    return (
        f" With several classes GNNExplainer follows the log-probability, whose gradient has the other sign on "
        f"{facts.softmax.opposed:.1%} of the edges (of='log_prob' asks about it)."
    )


def _one_layer(facts: Facts) -> Statement:
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
        f"{flips.share:.2%} of {flips.edges} gradients change their sign on sampled weights; {proved}.{_follows(facts)}"
    )
    so = f"{_STANDS_IN} on {1 - flips.share.value:.1%} of the edges; ew.compare measures how well.{_penalty(facts)}"
    verdict = facts.verdict([flips.share])
    return Statement(name, claim, "partly" if verdict == "fails" else verdict, why, so)


def _completeness(facts: Facts) -> Statement:
    claim = "The gradients of a layer's edges (and self edges) sum to the explained number."
    missing = [layer.missing for layer in facts.layers]
    verdict = facts.verdict(missing)
    if verdict == "holds":
        homogeneous = "" if facts.linear else " The paper asks for a linear network; without biases ReLU is enough."
        so = "A layer's gradient and self scores can be read as shares of the explained number."
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
    claim = "In a linear network layerwise gradients are layerwise occlusions."
    differences = [layer.difference for layer in facts.layers]
    if not any(number.known for number in differences):
        return Statement("Corollary 1", claim, "open", "There is no edge.", _NOTHING)
    if facts.at_most(differences, facts.rounding):
        why = "Every edge's gradient is its occlusion, up to rounding."
        so = "gradient (1 backward pass) stands in for occlusion (a pass per edge and layer), level='layer'."
        return Statement("Corollary 1", claim, "holds", why, so)
    cosines = {layer.layer: layer.cosine.mean() for layer in facts.layers if layer.cosine.undefined < len(layer.cosine)}
    if not cosines:
        return Statement("Corollary 1", claim, "open", "No edge changes anything.", _NOTHING)
    layer, least = min(cosines.items(), key=lambda item: item[1])
    verdict = "nearly" if least >= 1 - NEARLY else "fails"
    why = f"The network is not linear; the mean cosine of the two is at least {least:.3f} (layer {layer})."
    so = (
        "gradient stands in for occlusion for a ranking." if verdict == "nearly" else "Take occlusion where it matters."
    )
    return Statement("Corollary 1", claim, verdict, why, so)


def _sensitivity(facts: Facts) -> Statement:
    claim = "In a linear network dropping any edges of one layer costs the sum of their scores."
    numbers = [layer.unevenness for layer in facts.layers]
    verdict = facts.verdict(numbers)
    known = [number.value for number in numbers if number.known]
    if not known:
        return Statement("Sensitivity-n", claim, "open", f"{numbers[0].reason.capitalize()}.", _NOTHING)
    why = f"Random halves of a layer's edges miss that sum by {max(known):.1%} of the fall in the worst layer."
    good = verdict in ("holds", "nearly")
    so = "Gradients of one layer may be added up." if good else "Measure sets of edges with ew.metrics.fidelity."
    return Statement("Sensitivity-n", claim, verdict, why, so)


def _expectation(facts: Facts) -> Statement:
    claim = "If every ReLU is on with the same chance ρ, z is expected to be ρ^(L−1) times that of the network without ReLU."
    name, so = "Corollary 2", "It speaks of averages over patterns: no method follows from it for one target."
    others = facts.beyond_rectified_sums() + ([] if facts.unbiased is not False else ["what biases and skips carry"])
    if others:
        return Statement(name, claim, _NOT, f"It is about sums and ReLU alone; here is also {', '.join(others)}.", so)
    rates = [layer.rate.value for layer in facts.layers if layer.rate.known]
    if not rates:
        return Statement(name, claim, "holds", "There is no activation, so ρ is 1.", so)
    fixed = max(layer.fixed.value for layer in facts.layers if layer.fixed.known)
    why = f"ρ runs from {min(rates):.2f} to {max(rates):.2f} over the layers, and up to {fixed:.0%} of the units never switch."
    return Statement(name, claim, "open", why, so)


def _eig(facts: Facts) -> Statement:
    claim = "EiG-Search's edge score with base weight 0 is occlusion."
    so = "occlusion and eig_search are one and the same ranking."
    return Statement("Proposition 4", claim, "holds", "For any model: both ask what z loses without the edge.", so)


def _walks(facts: Facts) -> Statement:
    claim = "Algorithm 1 finds the most relevant walk exactly."
    question, most = facts.question, 2 if facts.question.task == "node" else 1
    if question.bypass:
        why = (
            f"Some of the network passes by later layers ({'; '.join(question.bypass)}): walks do not carry all of it."
        )
        return Statement("Theorem 1", claim, _NOT, why, "Read ew.walks beside edge scores, not instead of them.")
    if question.num_layers <= most:
        why = f"It is exact for up to {most} layers on {question.task} tasks; here are {question.num_layers}."
        return Statement("Theorem 1", claim, "holds", why, "ew.walks(search='dag') stands in for search='exact'.")
    why = (
        f"It keeps one prefix per node, which is exact for up to {most} layers on {question.task} tasks; here are "
        f"{question.num_layers} (the paper's proof overlooks this)."
    )
    return Statement("Theorem 1", claim, "fails", why, "Take ew.walks(search='exact'), which proves its result.")


def _goat(facts: Facts) -> Statement:
    claim = "The walk part of GOAt is a sum over walks, each divided by its number of factors."
    others = facts.beyond_rectified_sums()
    if others:
        why = f"It is stated for sums and ReLU alone; here is also {', '.join(others)}."
        return Statement(
            "Proposition 5", claim, _NOT, why, "goat_walks holds patterns and attention fixed: read it as such."
        )
    so = "lrp with rule='gradient' sums the same walks undivided in one pass; goat_walks goes through every walk."
    return Statement("Proposition 5", claim, "holds", "Sums of messages, and nothing but rectifiers between them.", so)

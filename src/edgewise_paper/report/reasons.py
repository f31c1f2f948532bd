"""Why numbers differ from the published ones: a sentence for each reason, with the measurement that says so.

One function for each section of the report; each yields sentences that the report prints as a list. Sentences about
results that a run does not have are left out. The numbers in them are measured anew in each run; how the published ones were
made is in `authors_code/`.
"""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from edgewise_paper.comparison import Compared, ResultView, correlation, published
from edgewise_paper.negative_evidence import EPSILON, FALLING
from edgewise_paper.report.document import number
from edgewise_paper.similarity import CODE, COMPUTATION_GRAPH, ONE_VECTOR
from edgewise_paper.task import KEY
from edgewise_paper.training.networks import ARCHITECTURES

PAIR = {"method": "gnn_explainer", "reference": "positive_gradient"}
MARKED = {"method": "full", "reference": "positive_gradient"}
"""Columns of two cosines: GNNExplainer to Positive Gradients, and full masks to them, the root of their share of edges."""


def of_negative_evidence(view: ResultView, experiment: str) -> Iterator[str]:
    """Negative Evidence: the weight that training leaves on gray, against ε."""
    gray = view.values(experiment=experiment, quantity="weight of gray", variant="")
    cosine = view.values(experiment=experiment, quantity="cosine", variant="", **PAIR)
    above = [seed for seed, weight in gray.items() if weight > EPSILON and seed in cosine]
    calm = view.one(experiment=experiment, quantity="cosine", variant=FALLING, **PAIR)
    if above and calm:
        good = [cosine[seed] for seed in gray if seed not in above]
        yield (
            "The training ends with the learning rate with which it began: Adam steps around zero and leaves a "
            "weight on gray, "
            f"the colour that means nothing. In {len(above)} of {len(gray)} seeds this weight is above the "
            "paper's ε = 0.001, "
            f"gray edges may then count as positive, and the cosine is {number(min(cosine[seed] for seed in above))} or more "
            f"({number(min(good)) if good else '–'} or more in the other seeds). With a rate that falls to "
            f"0.0001 (`{FALLING}`) "
            f"it is {number(calm.low)} or more in every seed."
        )


def of_infection(view: ResultView) -> Iterator[str]:
    """Infection: the spread over seeds, the learning rate, Algorithm 1, full masks."""
    cosine = view.values(experiment="infection", quantity="cosine", level="input", variant="", **PAIR)
    marked = view.values(experiment="infection", quantity="cosine", level="input", variant="", **MARKED)
    signs = view.values(experiment="infection", quantity="sign agreement", method="log_prob at ω = 0.5")
    if len(cosine) > 2:
        by_marked, by_signs = (
            correlation([(found[seed], value) for seed, value in cosine.items() if seed in found])
            for found in (marked, signs)
        )
        yield (
            f"Positive Gradients and GNNExplainer agree with a cosine of {number(min(cosine.values()))} to "
            f"{number(max(cosine.values()))}, depending on the seed (published 0.8472). Trained masks do not reach 0 in 100 "
            "epochs: an edge that they turn away from keeps about 0.3. So the cosine says above all how many edges have "
            "a positive gradient, which differs from model to model. Measured by the cosine of Positive Gradients "
            "to the full mask, the root of their share "
            f"({number(min(marked.values()))} to {number(max(marked.values()))}), the correlation over the seeds is "
            f"{number(by_marked, 2)}. Whether the two methods look at gradients of the same sign explains less: "
            f"{number(by_signs, 2)} for the share of edges on which the log-probability at ω = ½ and the logit "
            "at ω = 1 agree."
        )
    slow = view.one(experiment="infection", variant="lr 0.003")
    if slow:
        usual = view.one(experiment="infection", quantity="cosine", level="input", variant="", **PAIR)
        yield (
            "The text gives GNNExplainer a learning rate of 0.003, the code leaves PyG's 0.01. The cosine is "
            f"{number(slow.mean)} with the text's, {number(usual.mean if usual else math.nan)} with the code's."
        )
    missed = view.one(experiment="infection", quantity="walk is maximal", method="dag")
    if missed:
        yield (
            f"Algorithm 1 is not exact for four layers: it finds a walk with the highest score for {missed.mean:.1%} of the "
            f"nodes ({missed.low:.1%} to {missed.high:.1%} over the seeds). Finding the highest score is not the same as "
            "finding the true path, so a search may recover more paths than the exact one."
        )
    yield (
        "Published full masks are a hop wider than the computation graph (five hops at the input level); the rows named "
        "`code` have that width."
    )


# --- Real data ---------------------------------------------------------------------------------------------------------


def of_nodes(view: ResultView) -> Iterator[str]:
    """Nodes: full masks, how layers are averaged, sign flips, Cornell."""
    narrow = _mean(view.find(experiment="node-classification", method="full", level="input", variant=COMPUTATION_GRAPH))
    whole = _mean(view.find(experiment="node-classification", method="full", level="input", variant=""))
    yield (
        "Full at the input level is the whole neighbourhood, with edges that lead away from the target: mean cosine "
        f"{number(whole)}. Edges of the computation graph alone are closer to Positive Gradients, {number(narrow)}."
    )
    yield from _layerwise_reason(view)
    yield from _flip_reason(view, "node-classification")
    if view.find(experiment="node-classification", dataset="Cornell"):
        yield (
            "Cornell: the public files were a copy of Texas's until July 2022. Ours are the corrected ones, so published "
            "numbers that were made with the old ones cannot be met."
        )


def _layerwise_reason(view: ResultView) -> Iterator[str]:
    """How layers are averaged."""
    where = {"experiment": "node-classification", "method": "gnn_explainer", "level": "layer"}
    by_layer, joint = (_mean(view.find(**where, variant=v)) for v in ("", ONE_VECTOR))
    yield (
        "Layerwise cosines: the text averages over targets and layers, the notebooks take all layers as one vector. For "
        f"GNNExplainer that is {number(by_layer)} against {number(joint)} in the mean. The layerwise "
        "GNNExplainer of the code is "
        "another algorithm (`edgewise reproduce --published`)."
    )


def of_graphs(view: ResultView) -> Iterator[str]:
    """Graphs: norms over the batch, published occlusion, signs, which graphs are averaged."""
    where = {"experiment": "graph-classification", "quantity": "accuracy", "architecture": "GIN"}
    alone, batched = (_mean(view.find(**where, variant=v)) for v in ("", CODE))
    if not math.isnan(alone):
        yield (
            "GIN: PyG's LayerNorm inside its blocks looks at all graphs of a batch. Classified in batches of 32, as in "
            f"training, its accuracy is {alone if math.isnan(batched) else batched:.1%}; one by one, as graphs are "
            f"explained, {alone:.1%}."
        )
    yield (
        "Layerwise gradients against occlusion: published values of graph data are almost all 1, because the loop headed "
        "“occlusion” calls the gradient explainer (explain/explain_graph_classification.py, line 236). Occlusion as the text "
        f"has it, for LayerNorm networks that are far from linear: {_mean_text(view)}."
    )
    yield from _unsigned_reason(view)
    yield "Published means are over the test graphs with label 1 (rows named `code`); the text's are over all test graphs."
    yield from _flip_reason(view, "graph-classification")


def _unsigned_reason(view: ResultView) -> Iterator[str]:
    """Occlusion without its sign."""
    where = {
        "experiment": "graph-classification",
        "level": "input",
        "method": "occlusion",
        "architecture": ARCHITECTURES,
    }
    signed, unsigned = (_mean_distance(view.find(**where, variant=v), (CODE,)) for v in ("", CODE))
    yield (
        "The code drops the sign of the occlusion of a single logit; the text does not. Without signs the mean distance "
        f"to the published input-level curves is {number(unsigned)}, with them {number(signed)}."
    )


def _mean_text(view: ResultView) -> str:
    """Mean cosine of layerwise gradients to layerwise occlusion, for each architecture."""
    where = {"experiment": "graph-classification", "level": "layer", "method": "gradient", "variant": CODE}
    parts = {name: _mean(view.find(**where, architecture=name)) for name in ("GCN", "GAT", "GIN")}
    return ", ".join(f"{name} {number(value)}" for name, value in parts.items())


def _mean_distance(found: Sequence[Compared], variants: tuple[str, ...], **filed: str) -> float:
    """Mean distance of our numbers to the published points, NaN without any.

    A published point may have other columns than our number: one of the `variants`, and the columns `filed`.
    """
    theirs = published()
    distances = []
    for one in found:
        columns = dict(zip(KEY, one.key, strict=True)) | filed
        keys = [tuple((columns | {"variant": variant}).values()) for variant in variants]
        distances += [abs(one.mean - theirs[key].value) for key in keys if key in theirs]
    return fmean(distances) if distances else math.nan


def _flip_reason(view: ResultView, experiment: str) -> Iterator[str]:
    """Which gradients are counted, and with which weights."""
    where = {"experiment": experiment, "quantity": "sign flips", "method": "all"}
    any_text, any_code, own = (
        _mean(view.find(**where, reference=whose, variant=variant))
        for whose, variant in (("any gradient", ""), ("any gradient", CODE), ("own gradient", ""))
    )
    theirs = [
        one.published.value for one in view.find(**where, reference="any gradient", variant=CODE) if one.published
    ]
    if theirs and not math.isnan(own):
        yield (
            f"Sign flips: {any_text:.1%} of all gradients flip for some weight of some varied edge from 1 to 0 (published "
            f"{sum(theirs) / len(theirs):.1%}), {any_code:.1%} with the script's weights 0.73 to 0.50; of the varied edges' "
            f"own gradients, which Proposition 2 is about, {own:.1%} do."
        )


def of_sgc(view: ResultView) -> Iterator[str]:
    """The linear network: where the theory is exact."""
    exact = view.find(experiment="sgc", level="layer", method="gradient", variant="")
    if exact:
        worst = max(abs(1 - one.mean) for one in exact)
        rounded = f" up to {worst:.0e}" if worst else ""
        yield f"Layerwise gradients and layerwise occlusion of the linear network are the same: the cosine is 1{rounded}."


def _mean(found: list[Compared]) -> float:
    """The mean of our numbers; NaN without any."""
    known = [one.mean for one in found if not math.isnan(one.mean)]
    return sum(known) / len(known) if known else math.nan

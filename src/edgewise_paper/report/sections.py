"""The sections of the report, one function for each experiment (`SECTIONS`): figures, tables, and reasons.

A section takes the results of a run and yields blocks. It may ask for a figure that cannot be drawn, because a run has not
all results: `write.py` leaves such blocks out.
"""

from collections.abc import Callable, Iterator

from edgewise_paper.comparison import Compared, ResultView
from edgewise_paper.data import GRAPH_SETS, NODE_SETS
from edgewise_paper.report import reasons
from edgewise_paper.report.document import (
    Block,
    FigureBlock,
    Items,
    Paragraph,
    TableBlock,
    depth_table,
    full_table,
    number,
)
from edgewise_paper.similarity import CODE, COMPUTATION_GRAPH, ONE_VECTOR
from edgewise_paper.theorems import as_claimed

Section = Callable[[ResultView], Iterator[Block]]
"""From the results of a run to the blocks of a section."""


def label(one: Compared) -> str:
    """A compared number in words: data set, architecture, layers, quantity, level, method, reference, variant."""
    parts = [one.dataset, one.architecture, f"{one.layers} layers" if one.layers > 1 else ""]
    parts += [one.quantity, f"layer {one.layer}" if one.layer else one.level, one.method]
    parts += [f"to {one.reference}" if one.reference else "", f"({one.variant})" if one.variant else ""]
    return " ".join(part for part in parts if part)


def short(one: Compared) -> str:
    """A compared number in words, where the table's title says on which data and network."""
    return " ".join(
        p for p in (one.quantity, one.method, f"to {one.reference}" if one.reference else "", _variant(one)) if p
    )


def _variant(one: Compared) -> str:
    return f"({one.variant})" if one.variant else ""


def colours(view: ResultView, experiment: str, figure: str) -> Iterator[Block]:
    """An experiment on Negative Evidence: all numbers, the picture, reasons."""
    yield full_table(view.find(experiment=experiment), "Test nodes of one graph for each seed", short)
    yield FigureBlock(figure, "One node and its neighbours: what each explanation says about their edges.")
    yield Items(list(reasons.of_negative_evidence(view, experiment)))


def negative_evidence(view: ResultView) -> Iterator[Block]:
    """Negative Evidence with two colours."""
    yield from colours(view, "negative-evidence", "negative-evidence")


def negative_evidence_multiclass(view: ResultView) -> Iterator[Block]:
    """Negative Evidence with three colours."""
    yield from colours(view, "negative-evidence-multiclass", "negative-evidence-multiclass")


def infection(view: ResultView) -> Iterator[Block]:
    """Infection: numbers, matrices of cosines, paths, the spread over seeds."""
    scalars = [one for one in view.find(experiment="infection") if one.quantity != "cosine"]
    pair = view.find(experiment="infection", quantity="cosine", level="input", **reasons.PAIR)
    yield full_table([*pair, *scalars], "All nodes of one graph for each seed", short)
    yield FigureBlock(
        "infection-similarity", "Mean cosines between explanations, input level; ours above, published below."
    )
    yield FigureBlock("infection-layerwise", "The same for every layer; layer 1 reads the features.")
    if ("infection", "infection paths") in view.pictures:
        yield FigureBlock("infection-paths", "Best walk of Algorithm 1 and of AMP-ave for a node where they differ.")
    if len(view.values(experiment="infection", quantity="accuracy")) > 1:
        yield FigureBlock("infection-seeds", "Each point is a seed.")
    yield Items(list(reasons.of_infection(view)))
    matrices = view.find(experiment="infection", quantity="cosine")
    yield full_table(matrices, "Every cosine of Infection", _cosine_label, folded=True)


def _cosine_label(one: Compared) -> str:
    where = f"layer {one.layer}" if one.layer else "input"
    return f"{where}: {one.method} to {one.reference} {_variant(one)}".strip()


def _depths(view: ResultView, experiment: str, datasets: tuple[str, ...]) -> Iterator[Block]:
    """Tables of real data, a column for each depth: accuracy, cosines at both levels, sign flips."""
    yield Paragraph("Ours ± deviation over the seeds; published numbers in brackets.")
    for dataset in datasets:
        here = view.find(experiment=experiment, dataset=dataset)
        if not here:
            continue
        accuracy = [one for one in here if one.quantity in ("accuracy", "AUROC")]
        yield depth_table(accuracy, f"{dataset}: accuracy in percent", _accuracy_label, percent=True)
        for level, title in (
            ("input", "input-level cosine to Positive Gradients"),
            ("layer", "layerwise cosine to occlusion"),
        ):
            cosines = [one for one in here if one.level == level]
            if cosines:
                yield depth_table(cosines, f"{dataset}: {title}", _method_label)
        flips = [one for one in here if one.quantity == "sign flips"]
        if flips:
            yield depth_table(flips, f"{dataset}: share of gradients that change their sign", _flip_label)


# Labels of lines: each leaves out what the caption of its table says.


def _accuracy_label(one: Compared) -> str:
    return f"{one.architecture} {one.quantity} {_variant(one)}".strip()


def _method_label(one: Compared) -> str:
    to = " to gradient" if one.reference == "gradient" else ""
    return f"{one.architecture} {one.method}{to} {_variant(one)}".strip()


def _flip_label(one: Compared) -> str:
    return f"{one.architecture} {one.reference}, {one.method} {_variant(one)}".strip()


VARIANTS = (
    f"`{CODE}`: averaged as the authors' notebooks do; `{ONE_VECTOR}`: all layers as one vector; `{COMPUTATION_GRAPH}`: full "
    f"masks of computation graphs; no name: the text's definition. Sign flips with `{CODE}`: weights 0.73 … 0.50 instead of "
    "1 … 0, from gradients at 0.73."
)


def node_classification(view: ResultView) -> Iterator[Block]:
    """Real data, nodes: the figures of real data (with those of graphs in them), reasons, tables."""
    yield from _figures()
    if ("node-classification", "cora node") in view.pictures:
        yield FigureBlock(
            "cora-node", "Positive Gradients and GNNExplainer for a test node of Cora and a GCN with two layers."
        )
    yield Paragraph(VARIANTS)
    yield Items(list(reasons.of_nodes(view)))
    yield from _depths(view, "node-classification", NODE_SETS)


def _figures() -> Iterator[Block]:
    """The figures that nodes and graphs share."""
    yield FigureBlock(
        "real-input-similarity", "Mean input-level cosine to Positive Gradients (solid: ours, dashed: published)."
    )
    yield FigureBlock(
        "real-layerwise-similarity", "Mean layerwise cosine to occlusion, as the published figure is made."
    )
    yield FigureBlock("real-sign-flips", "Share of gradients that change their sign, with the text's weights 1 … 0.")
    yield FigureBlock("real-sign-flips-code", "The same with the weights of the authors' script, 0.73 … 0.50.")


def graph_classification(view: ResultView) -> Iterator[Block]:
    """Real data, graphs: reasons and tables; also the figures, if there is no section about nodes."""
    if not view.find(experiment="node-classification"):
        yield from _figures()
    yield Paragraph(VARIANTS)
    yield Items(list(reasons.of_graphs(view)))
    yield from _depths(view, "graph-classification", GRAPH_SETS)


def sgc(view: ResultView) -> Iterator[Block]:
    """The linear network on Cora: reasons and tables."""
    yield Items(list(reasons.of_sgc(view)))
    yield from _depths(view, "sgc", ("Cora",))


def regularisation(view: ResultView) -> Iterator[Block]:
    """The regularisers of GNNExplainer: trajectories, and shares of masks under each combination."""
    yield FigureBlock(
        "mask-trajectories",
        "Masks of random edges over the epochs, from ω = ½, under each combination of regularisers.",
    )
    found = view.find(experiment="regularisation")
    regimes = list(dict.fromkeys(one.variant for one in found))
    lines: dict[str, dict[str, str]] = {}
    for one in found:
        name = f"{one.dataset}: {one.quantity}{f', {one.reference}' if one.reference else ''}"
        lines.setdefault(name, {})[one.variant] = number(one.mean)
    rows = [[name, *(cells.get(regime, "") for regime in regimes)] for name, cells in lines.items()]
    yield TableBlock(["", *regimes], rows, "Shares of masks, by the regularisers that were on")
    yield Paragraph(
        "The appendix says that the entropy term only speeds up what the first step has decided, in which the "
        "size term takes "
        "part. In PyG it does not: there the regularisers act from the second step on."
    )


def theorems(view: ResultView) -> Iterator[Block]:
    """Statements of the paper on random networks, with the worst deviation of each."""
    rows = []
    for one in view.find(experiment="theorems"):
        name = one.method
        verdict = "as claimed" if as_claimed(name, one.mean) else "differs"
        rows.append((name, f"{one.mean:.1e}", str(one.count), verdict))
    yield TableBlock(("statement", "worst deviation", "random networks", "verdict"), rows)


def beyond(view: ResultView) -> Iterator[Block]:
    """What Edgewise adds: few passes, maximal walks, proofs."""
    yield FigureBlock("few-passes", "GNNExplainer in a few backward passes.")
    yield full_table(view.find(experiment="beyond"), "Seconds are in results.parquet", label)


def smallest_flip(view: ResultView) -> Iterator[Block]:
    """Proven smallest sets, and what rankings take."""
    yield Paragraph(
        "The smallest set of edges whose silencing changes the predicted class, both directions of an edge "
        "together (edges) or "
        "apart (columns). For rankings: nodes whose smallest set is proven and has two edges or more."
    )
    yield full_table(view.find(experiment="smallest-flip"), "Seconds are in results.parquet", label)


def sentiment_trees(view: ResultView) -> Iterator[Block]:
    """Sentiment trees: cosines by depth, and how phrase labels are found."""
    yield Paragraph(
        "The Stanford Sentiment Treebank in place of Graph-SST2, which cannot be had here: words have learned "
        "vectors, no BERT "
        "features, so published numbers of Graph-SST2 do not stand beside these. AUROC against phrase labels: are edges from "
        "phrases of the sentence's own polarity ranked before the others? 0.5 is chance. An accuracy of 0.5 is chance, too, "
        "and explanations of such a network say nothing about sentences. Command: "
        "`edgewise reproduce sentiment-trees --seeds 3`."
    )
    found = view.find(experiment="sentiment-trees")
    trained = [f"{one.architecture}, {one.layers} layers: {one.seeds}" for one in found if one.quantity == "accuracy"]
    yield Paragraph(f"Networks that are here, with their seeds: {'; '.join(trained)}.")
    for quantity in ("accuracy", "cosine", "AUROC against phrase labels"):
        some = [one for one in found if one.quantity == quantity]
        if some:
            yield depth_table(some, f"Sentiment trees: {quantity}", _sentence_label)


def _sentence_label(one: Compared) -> str:
    parts = (one.architecture, one.level, one.method, f"to {one.reference}" if one.reference else "")
    return " ".join(part for part in parts if part)


def walk_cost(view: ResultView) -> Iterator[Block]:
    """Seconds of Algorithm 1 as edges, layers and width grow."""
    yield Paragraph(
        "The text claims O(L (|V| + |E|) γ(p)) with γ the cost of a product of p × p matrices. An exponent is "
        "the slope of log "
        "seconds over log size; walks carry vectors, so p² bounds a step, and wide products run faster than "
        "their operations count. "
        "Published: 8.12 s a target on a GPU for a graph of 4,152 edges, four layers and width 20."
    )
    yield full_table(view.find(experiment="walk-cost"), "One node that sees the whole of a random graph", label)


SECTIONS: dict[str, Section] = {
    "negative-evidence": negative_evidence,
    "negative-evidence-multiclass": negative_evidence_multiclass,
    "infection": infection,
    "node-classification": node_classification,
    "graph-classification": graph_classification,
    "sgc": sgc,
    "regularisation": regularisation,
    "theorems": theorems,
    "beyond": beyond,
    "smallest-flip": smallest_flip,
    "sentiment-trees": sentiment_trees,
    "walk-cost": walk_cost,
}

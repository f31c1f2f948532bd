"""`edgewise reproduce --published`: tasks and rows. One task trains and explains one network, all of it as coded.

| experiment | its networks |
|---|---|
| `published-planted` | Infection and Negative Evidence, rebuilt from the authors' seed; with more seeds, others like them |
| `published-linear` | the linear network on Cora, one to five layers |
| `published-nodes` | GCN on five graphs, one to five layers; with `--full` GAT and GIN too |
| `published-graphs` | GCN on MUTAG; with `--full` GAT and GIN, and PROTEINS |

Columns of rows are those of the published tables, so that each finds its published number (`verdicts.py`).
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Batch

import edgewise as ew
from edgewise.datasets.infection import clear_nodes, is_true_path
from edgewise_paper.authors_code import measures, rebuilt, scripted_flips, trainings
from edgewise_paper.authors_code.maskable import explained
from edgewise_paper.authors_code.scripted_flips import CORRECTED
from edgewise_paper.authors_code.side_by_side import SIDE_BY_SIDE, keep_networks, kept_network
from edgewise_paper.context import Context
from edgewise_paper.data import NODE_SETS
from edgewise_paper.negative_evidence import EPSILON, difference
from edgewise_paper.negative_evidence import EXPLAINER as SHARP_EXPLAINER
from edgewise_paper.node_classification import QUICK_DEPTHS, QUICK_EPOCHS
from edgewise_paper.task import PaperOptions, Row, Task, TaskOutcome
from edgewise_paper.training.networks import LINEAR, NODE_EPOCHS, Recipe
from edgewise_paper.training.train import accuracy

PLANTED, LINEAR_NAME, NODES, GRAPHS = "published-planted", "published-linear", "published-nodes", "published-graphs"
ORDERS = 5
"""Roundings of the published Infection network: float32 with the edges in so many orders."""
SEARCHES = ("dag", "amp_ave_additive", "exact")
LARGE = ("Cora", "CiteSeer")
DEPTHS = range(1, 6)
LINEAR_COST = {1: 4, 2: 10, 3: 23, 4: 40, 5: 105}  # seconds on one core
NODE_COST = {"Cora": LINEAR_COST, "CiteSeer": {1: 6, 2: 11, 3: 21, 4: 29, 5: 41}}
GRAPH_COST = {"MUTAG": 7.0, "PROTEINS": 57.0}  # a layer
SLOWER = {"GCN": 1.0, "GAT": 3.0, "GIN": 1.2}


def architectures(options: PaperOptions) -> tuple[str, ...]:
    """GCN, which the text's figures speak of most; with `--full` all three."""
    return ("GCN", "GAT", "GIN") if options.full else ("GCN",)


def planted_tasks(options: PaperOptions) -> list[Task]:
    """Two kinds of Negative Evidence, and Infection, for every seed; the roundings of Infection for the first."""
    if options.quick:
        return []
    tasks = []
    for seed in range(options.seeds):
        about = {"dataset": "Infection", "architecture": "GraphSAGE", "layers": 4, "seed": seed}
        tasks.append(Task(PLANTED, "infection", about, 24.0))
        for colours, name in ((2, "Negative Evidence"), (3, "Negative Evidence (three colours)")):
            about = {"dataset": name, "layers": 1, "colours": colours, "seed": seed}
            tasks.append(Task(PLANTED, "negative evidence", about, 2.5))
    about = {"dataset": "Infection", "architecture": "GraphSAGE", "layers": 4, "seed": 0}
    return tasks + [Task(PLANTED, "rounding", about | {"order": order}, 1.5) for order in range(ORDERS)]


def linear_tasks(options: PaperOptions) -> list[Task]:
    """The linear network on Cora."""
    if options.quick:
        return []
    return [
        Task(LINEAR_NAME, "network", {"dataset": "Cora", "architecture": LINEAR, "layers": layers, "seed": seed}, cost)
        for seed in range(options.seeds)
        for layers, cost in LINEAR_COST.items()
    ]


def node_tasks(options: PaperOptions) -> list[Task]:
    """Networks on the nodes of five graphs."""
    tasks = []
    for seed in range(options.seeds):
        for name in ("Cornell",) if options.quick else NODE_SETS:
            for architecture in architectures(options):
                for layers in QUICK_DEPTHS if options.quick else DEPTHS:
                    cost = NODE_COST.get(name, {}).get(layers, 0.8 * layers) * SLOWER[architecture]
                    recipe = Recipe(name, architecture, layers, seed, QUICK_EPOCHS if options.quick else NODE_EPOCHS)
                    about = {"dataset": name, "architecture": architecture, "layers": layers, "seed": seed}
                    tasks.append(Task(NODES, "network", about | {"training": recipe.plain}, cost))
    return tasks


def graph_tasks(options: PaperOptions) -> list[Task]:
    """Networks on the graphs of one split. On a GPU one task trains all seeds, and the others wait for it."""
    if options.quick:
        return []
    tasks = []
    sets = GRAPH_COST if options.full else {"MUTAG": GRAPH_COST["MUTAG"]}
    for name, architecture, layers in product(sets, architectures(options), DEPTHS):
        cost = sets[name] * layers * SLOWER[architecture]
        about = {"dataset": name, "architecture": architecture, "layers": layers}
        recipes = [Recipe.for_graphs(name, architecture, layers, seed) for seed in range(options.seeds)]
        before, more = None, {}
        if options.device.startswith("cuda"):
            settings = {"seeds": options.seeds, "training": recipes[0].plain}
            before, more = Task(GRAPHS, "training", about | settings, cost), {"trained": SIDE_BY_SIDE}
        for recipe in recipes:
            settings = about | {"seed": recipe.seed, "training": recipe.plain} | more
            tasks.append(Task(GRAPHS, "network", settings, cost, before))
    return tasks


def notes(options: PaperOptions) -> list[str]:
    """What these options leave out."""
    if options.quick:
        return ["A quick run: GCN on Cornell, briefly trained. These numbers are not comparable with the paper's."]
    return [] if options.full else ["GAT, GIN and PROTEINS are left out; --full runs them, which takes hours."]


def run(task: Task, context: Context) -> TaskOutcome:
    """One network: trained or rebuilt, and everything that was published about it."""
    parts = {
        "training": _training,
        "infection": _infection,
        "rounding": _rounding,
        "negative evidence": _negative_evidence,
        "network": {LINEAR_NAME: _linear, NODES: _nodes, GRAPHS: _graphs}.get(task.experiment),
    }
    made = parts[task.part]
    assert made is not None
    rows, device = list(made(task, context)), context.options.device
    if device != "cpu":
        rows = [replace(row, versions={**row.versions, "device": device}) for row in rows]
    return TaskOutcome(rows)


def _rows(task: Task, measured: measures.Measured) -> Iterator[Row]:
    """Cosines as rows, with the seconds that each took."""
    start = time.perf_counter()
    for where, value, count in measured:
        yield task.row("cosine", value, count=count, seconds=time.perf_counter() - start, **where)
        start = time.perf_counter()


# --- Planted truth -----------------------------------------------------------------------------------------------------


def _infection(task: Task, _context: Context) -> Iterator[Row]:
    found = rebuilt.rebuilt_infection(task.settings["seed"])
    yield task.row("accuracy", found.accuracy, count=found.data.num_nodes)
    yield from _recoveries(task, found, "")
    yield from _rows(task, measures.infection_cosines(found.model, found.data, found.targets, task.settings["seed"]))


def _rounding(task: Task, _context: Context) -> Iterator[Row]:
    """The published network once more, with another rounding: what no one can repeat exactly."""
    found = rebuilt.rebuilt_infection(0, order=task.settings["order"])
    yield from _recoveries(task, found, f"float32, order {task.settings['order']}")


def _recoveries(task: Task, found: rebuilt.Rebuilt, variant: str) -> Iterator[Row]:
    """How often searches find the true path (nbks/infection.ipynb, cell 14), and the example walks (cell 12)."""
    nodes = clear_nodes(found.data)
    for search in SEARCHES:
        walks = {
            one.index: one
            for one in ew.walks(found.model, found.data, nodes, target=found.data.y[nodes], search=search)
        }
        right = [bool(len(walks[i])) and is_true_path(found.data, i, walks[i][0].nodes) for i in nodes.tolist()]
        about = {"method": search, "variant": variant}
        yield task.row("path recovery", sum(right) / len(right), count=len(right), **about)
        wanted = rebuilt.EXAMPLE_WALKS.get(search)
        if wanted and task.settings["seed"] == 0 and rebuilt.EXAMPLE_NODE in walks:
            same = tuple(walks[rebuilt.EXAMPLE_NODE][0].nodes) == wanted
            yield task.row("walk of the notebook", float(same), count=1, **about)


def _negative_evidence(task: Task, _context: Context) -> Iterator[Row]:
    """nbks/neg_evidence.ipynb, cells 13 to 15, and more_multiclass_neg_evidence.ipynb, cell 12."""
    colours, seed = task.settings["colours"], task.settings["seed"]
    found = rebuilt.rebuilt_negative_evidence(colours, seed)
    yield task.row("accuracy", found.accuracy, count=len(found.targets))
    if seed == 0:
        ours, theirs = zip(*rebuilt.weights_beside_notebook(found, colours), strict=True)
        worst = max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
        yield task.row("distance to the notebook's weights", worst, count=len(ours), method="model")

    def masks(**settings: Any) -> ew.ExplanationSet:
        return explained(found.model, found.data, found.targets, **settings)

    explainer = masks(method="gnn_explainer", **SHARP_EXPLAINER)
    positive = masks(method="positive_gradient", epsilon=EPSILON)
    where: dict[str, Any] = {"level": "input", "method": "gnn_explainer", "reference": "positive_gradient"}
    yield from _rows(task, iter([(where, *measures.mean_cosine(explainer, positive, leave_out=False))]))
    if colours == 2:
        gradient = masks(method="gradient")
        signed = difference(explainer, masks(method="gnn_explainer", target=1 - gradient.target, **SHARP_EXPLAINER))
        where = {"level": "input", "method": "gnn_explainer − reversed", "reference": "gradient"}
        yield from _rows(task, iter([(where, *measures.mean_cosine(signed, gradient, leave_out=False))]))


# --- Networks on nodes and graphs --------------------------------------------------------------------------------------


def _linear(task: Task, context: Context) -> Iterator[Row]:
    found = context.node_set("Cora")
    layers, seed = task.settings["layers"], task.settings["seed"]
    model, _ = trainings.linear_network(layers, seed, found)
    yield from _node_rows(task, model, found, context.options.device)


def _nodes(task: Task, context: Context) -> Iterator[Row]:
    recipe = Recipe.read(task.settings)
    found = context.node_set(recipe.dataset)
    model, _ = context.trained(recipe)
    yield from _node_rows(task, model, found, context.options.device)
    if (recipe.dataset, recipe.architecture, recipe.layers) == ("Cora", "GCN", 2):
        value = measures.example_cosine(model, found.data, found.test)
        about = {
            "level": "input",
            "method": "gnn_explainer",
            "reference": "positive_gradient",
            "variant": "first test node",
        }
        yield task.row("cosine", value, count=1, **about)


def _node_rows(task: Task, model: nn.Module, found: Any, device: str) -> Iterator[Row]:
    """Accuracy, cosines at both levels, and sign flips of all test nodes (or of as many as are affordable)."""
    seed = task.settings["seed"]
    yield task.row("accuracy", accuracy(model, found), count=len(found.test))
    yield from _rows(task, measures.input_cosines(model, found.data, found.test, seed, device=device))
    yield from _rows(task, measures.layer_cosines_of_nodes(model, found.data, found.test, seed, device))
    columns = scripted_flips.scripted_columns(
        found.data.edge_index, found.test, found.data.num_nodes, large=found.name in LARGE
    )
    tally, count = scripted_flips.node_tally(model, found.data, found.test, columns, device=device)
    for method, share in tally.pooled().items():
        yield task.row("sign flips", share, method=method, reference="any gradient", count=count)
    if found.name not in LARGE:
        corrected, _ = scripted_flips.node_tally(model, found.data, found.test, columns, CORRECTED, device)
        yield from _text_flips(task, corrected.pooled())
    yield task.row("non-zero gradients", float(tally.counted.sum()) / count, method="gradient", count=count)


def _training(task: Task, context: Context) -> Iterator[Row]:
    keep_networks(context, Recipe.read(task.settings), task.settings["seeds"])
    return iter(())


def _graphs(task: Task, context: Context) -> Iterator[Row]:
    recipe = Recipe.read(task.settings)
    found, device = context.graph_set(recipe.dataset), context.options.device
    if "trained" in task.settings:
        model = kept_network(context, recipe)
    else:
        model, _ = trainings.train_graphs(recipe, found)
    _, _, test = trainings.one_split(found)
    graphs = [found.graphs[i] for i in test.tolist()]
    yield from _balanced(task, model, graphs)
    chosen = [graph for graph in graphs if int(graph.y) == 1]  # explain_graph_classification.py, lines 48 to 51
    yield from _rows(task, measures.input_cosines(model, chosen, None, recipe.seed, task="graph", device=device))
    yield from _rows(task, measures.layer_cosines_of_graphs(model, chosen, recipe.seed, device))
    for method, share in scripted_flips.graph_tally(model, chosen, device=device).by_graph().items():
        yield task.row("sign flips", share, method=method, reference="any gradient", count=len(chosen))
    if recipe.dataset == "MUTAG":
        yield from _text_flips(task, scripted_flips.graph_tally(model, chosen, CORRECTED, device).by_graph())


def _text_flips(task: Task, shares: dict[str, float]) -> Iterator[Row]:
    """The corrected flips: weights from 1 to 0, as the text says, from gradients at weight 1."""
    for method, share in shares.items():
        yield task.row("sign flips", share, method=method, reference="any gradient", variant="weights 1 to 0")


def _balanced(task: Task, model: Any, graphs: list[Any]) -> Iterator[Row]:
    """What the code calls AUROC: that of thresholded outputs, all test graphs in a batch.

    train/train_graph_classification.py, lines 107 to 112.
    """
    batch: Any = Batch.from_data_list(graphs)
    extras = {} if batch.edge_attr is None else {"edge_attr": batch.edge_attr}
    with torch.no_grad():
        out = trainings.coded_logits(
            model, {"x": batch.x, "edge_index": batch.edge_index, "batch": batch.batch, **extras}
        )
    right = (out > 0) == (batch.y == 1)
    value = torch.stack([right[batch.y == label].double().mean() for label in (0, 1)]).mean()
    yield task.row("AUROC", float(value), count=len(graphs))

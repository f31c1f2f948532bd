"""`ew.write_page`: the explanations of some targets as one HTML page to send to a colleague."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_geometric.data import Batch, Data, HeteroData

from edgewise.arguments import shown
from edgewise.contract import checked
from edgewise.errors import FileError
from edgewise.files import can_be_written, write_whole
from edgewise.question import pose
from edgewise.report.page.html import inline_script, page_html
from edgewise.report.page.page_data import Names, contents
from edgewise.report.page.page_run import find, read_page, read_target, task_of
from edgewise.report.page.page_words import settings_rows
from edgewise.report.typed_look import refuse_classes
from edgewise.text import plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor, nn

    from edgewise.question import PosedQuestion

LONGEST_TITLE = 90
METHODS = ("gradient", "positive_gradient", "occlusion", "gnn_explainer", "random")


@checked
def write_page(
    path: str | Path,
    model: nn.Module,
    data: Any,
    index: Any = None,
    *,
    methods: Sequence[Any] = METHODS,
    levels: str | Sequence[str] = ("input", "layer"),
    walks: int | None = 5,
    target: Any = "predicted",
    task: str | None = None,
    mode: str | None = None,
    of: str | None = None,
    check: bool = True,
    edges: int = 60,
    node_names: Any = None,
    node_classes: Any = None,
    class_names: Any = None,
    edge_texts: Any = None,
    title: str | None = None,
    settings: Mapping[str, Any] | None = None,
    output: str | None = None,
    forward: Callable[..., Tensor] | None = None,
    without_itself: bool = False,
    memory: Any = None,
    batch_size: int | None = None,
    device: Any = None,
    seed: int = 0,
    progress: bool = False,
    **method_settings: Any,
) -> Path:
    """Explain some targets with several methods and write one HTML file about them, which works without a network.

    The page lets its reader pick the target, the method, the level and the layer, and how many edges are drawn; shows every
    edge's numbers under all methods, the computation graph layer by layer, the best walks, how far the methods agree, the
    prediction, what `ew.check` says about the model, and the settings. Where a method or the walks cannot be had for this
    model, the page says why.

    Args:
        path: The name of the file, such as `"why.html"`; it appears when it is complete.
        model: As in `explain`, like every argument that is not described here.
        data: The graph, or for a graph task the graphs. Molecules (with `smiles`, or labels as in MUTAG) are drawn as such.
        index: Which nodes or graphs, at most 60; of a `HeteroData` `("paper", [3, 5])`.
        methods: Names of `ew.methods()`, pairs of a name and its settings, or objects that `ew.from_pyg` made.
        levels: `"input"`, `"layer"`, or both.
        walks: How many of the best walks of each target; 0 for none.
        target: The class, or one for each index; `"predicted"` is the class that the model predicts.
        task: `"node"`, `"graph"` or `"link"`; `None` is `"node"` for one graph, `"graph"` for several.
        mode: `"multiclass"`, `"binary"`, `"multilabel"`, `"regression"`, or `None` to infer it.
        of: The explained number: `"logit"` (the default), `"log_prob"` or `"prob"`.
        check: Whether `ew.check` is asked about the model.
        edges: How many edges of every method, level and layer are kept on the page: the strongest ones.
        node_names: `{node: text}` or a text for every node; for graphs, `{graph: names}` or an entry for every graph; of a
            typed graph by node type, `{"user": ["Ann", "Bob"]}`.
        node_classes: Colours of the nodes, in the same form. Nodes of typed graphs have the colours of their types.
        class_names: A name for every class, or `{class: name}`.
        edge_texts: Texts of edges, shown beside their attributes: `{"reference": ["INV-1", "INV-2", …]}`, one for each column.
        title: The heading of the page.
        settings: Further rows under "What made this page", such as file names.
        output: What the model returns: `"logit"`, `"log_prob"`, `"prob"` or `"value"`; `None` reads it off the model.
        forward: `lambda model, data: …`, if the model is not called as `model(x, edge_index, …)`.
        without_itself: As in `explain`, for links.
        memory: A ceiling for the memory of the work, such as `"2GB"`; blocks are made to fit.
        batch_size: Targets in a block, instead of `memory`.
        device: Where to compute, such as `"cuda"`.
        seed: Random seed; results do not depend on the order of targets.
        progress: Show a progress bar.
        **method_settings: Settings such as `epochs=50`, for every method that has one of that name.

    Returns:
        The path. Needs `edgewise[page]`.

    >>> import tempfile
    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])     # 0 ─2→ 1 ─3→ 2
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_page(f"{folder}/why.html", model, data, 2, methods=["gradient", "occlusion"])
    ...     page.name, page.stat().st_size < 2_000_000
    ('why.html', True)
    """
    own: dict[str, Any] = {
        "methods": methods, "levels": levels, "walks": walks, "check": check, "edges": edges, "seed": seed,
    }  # fmt: skip
    _begin(Path(path))
    read_page(**own, own_settings=method_settings)
    task = task or task_of(data)
    if task == "graph" and isinstance(data, (Data, HeteroData)) and not isinstance(data, Batch):
        data = [data]  # a set of one, like everything else on the page
    question = pose(
        model, data, index, target=read_target(target), task=task, mode=mode, of=of or "logit", output=output,
        forward=forward, device=device, without_itself=without_itself,
    )  # fmt: skip
    return page_of_question(
        path, question, **own, node_names=node_names, node_classes=node_classes, class_names=class_names,
        edge_texts=edge_texts, title=title,
        settings=settings, memory=memory, batch_size=batch_size, progress=progress, **method_settings,
    )  # fmt: skip


@checked
def page_of_question(
    path: str | Path,
    question: PosedQuestion,
    *,
    methods: Sequence[Any] = METHODS,
    levels: str | Sequence[str] = ("input", "layer"),
    walks: int | None = 5,
    check: bool = True,
    edges: int = 60,
    node_names: Any = None,
    node_classes: Any = None,
    class_names: Any = None,
    edge_texts: Any = None,
    title: str | None = None,
    settings: Mapping[str, Any] | None = None,
    memory: Any = None,
    batch_size: int | None = None,
    seed: int = 0,
    progress: bool = False,
    **method_settings: Any,
) -> Path:
    """The same for a question that is posed already."""
    path = Path(path)
    _begin(path)
    if question.types_of(0) is not None:
        refuse_classes(node_classes)
    asked = read_page(
        methods=methods, levels=levels, walks=walks, check=check, edges=edges, seed=seed, own_settings=method_settings
    ).about(question, {"memory": memory, "batch_size": batch_size})
    found = find(asked, progress=progress)
    told = contents(asked, found, Names(node_names, node_classes, class_names, edge_texts))
    heading = plain_text(title, longest=LONGEST_TITLE) if title else _title(told)
    page = page_html(heading, {**told, "title": heading}, settings_rows(asked, found, settings), found)
    write_whole(path, lambda file: file.write(page.encode()))
    return path


def _begin(path: Path) -> None:
    """Without Bokeh, or a place to write to, the work need not begin."""
    inline_script()
    _check_folder(path)


def _check_folder(path: Path) -> None:
    """Refuse a path that cannot be written, before the work."""
    if not can_be_written(path):
        raise FileError(
            f"{shown(str(path))} cannot be written. Use the name of a file, such as why.html, in a folder that exists and is "
            f"writable."
        )


def _title(told: Mapping[str, Any]) -> str:
    """The default heading: `Why node 22?`, `Why these 3 nodes?`, of a typed graph `Why account 22?`."""
    count, first = len(told["targets"]), told["targets"][0]
    if count == 1:
        is_named_link = told["task"] == "link" and not first["title"].startswith("link ")
        return f"Why {'the link ' if is_named_link else ''}{first['title']}?"
    of_type = f" of type {told['explained']}" if told["explained"] and told["task"] == "node" else ""
    return f"Why these {count} {told['task']}s{of_type}?"

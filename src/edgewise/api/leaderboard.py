"""`ew.leaderboard`: every method on data sets whose right explanation is known, in a folder that is gone on with at will."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgewise import datasets
from edgewise.algorithms.registry import built_in_methods
from edgewise.algorithms.registry import methods as known_methods
from edgewise.arguments import one_of, whole_number
from edgewise.board.board import Board, need_parquet
from edgewise.board.board_folder import BoardFolder
from edgewise.board.board_run import BoardRun, plan_networks
from edgewise.board.entrants import read_entrants
from edgewise.contract import checked
from edgewise.datasets.phrase_trees import FOLDER
from edgewise.errors import SettingError
from edgewise.files import VARIABLE, is_folder, versions
from edgewise.jobs.shard_run import engine_named
from edgewise.progress import progress_bar

NETWORKS = {"infection": 50, "sentiment_trees": 10}
"""Networks of a data set; `OTHERS` for the rest."""
OTHERS, TARGETS = 20, 10
QUICK_DATA = ("infection", "negative_evidence", "ba_shapes")
QUICK_METHODS = ("gradient", "occlusion", "integrated_gradients", "deep_lift", "gnn_explainer", "walks")
QUICK_NETWORKS, QUICK_TARGETS = 3, 5
LEFT_OUT = ("negative_evidence_multiclass",)
"""Too like its sister to stand beside it unasked."""


@checked
def leaderboard(
    out: str | Path,
    *,
    data: Sequence[str] | None = None,
    methods: Sequence[Any] | None = None,
    networks: int | None = None,
    targets: int | None = None,
    quick: bool = False,
    engine: str = "here",
    workers: int | None = None,
    progress: bool = False,
) -> Board:
    """Measure methods on data sets whose right explanation is known: are true edges found, and is it what the model used?

    For every data set some networks are trained, each on data of its own; some targets that a network gets right are then
    explained by every method. What is finished is kept in the folder, line by line: the same call goes on, and one that asks
    for more measures only what is missing. At the end it writes `results.parquet` (a row for each target) and `index.html`, the
    same bytes in every run, and what differs beside them: `times.parquet`, and `cost.html`, the page with times.

    Args:
        out: The folder; it is made if it is not there.
        data: Names of `ew.datasets.names()`, registered ones among them; without it, all.
        methods: Names of `ew.methods()`, registered ones among them, pairs of a name and its settings, what `ew.from_pyg` made,
            `"PyG"` for explainers of PyG, `"walks"` or `"walks:exact"` for searches of walks; without it, all. The yardsticks
            `random`, `full` and `node_degree` always take part.
        networks: How many of each data set; without it, 50 of Infection, 10 of the sentiment trees, 20 of the others.
        targets: How many of each network, 10 without it.
        quick: A small board in two minutes: three data sets, three networks each, and the faster methods.
        engine: `"here"`, or `"processes"` of this machine.
        workers: How many processes; `None` means one for each core.
        progress: Show a progress bar.

    Returns:
        A `Board`: print it for the tables; `board.of("infection")` gives standings with intervals and sets of ranks. Needs
        `edgewise[table]`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     board = leaderboard(folder, data=["negative_evidence"], methods=["gradient"], networks=1, targets=4)
    >>> [(one.method, round(one.mean, 2)) for one in board.of("negative_evidence")][0]
    ('gradient', 1.0)
    """
    need_parquet()
    counts, notes = _read_data(data, networks, quick=quick)
    number = whole_number("targets", targets, at_least=2, or_none="for 10", such_as=10)
    number = number or (QUICK_TARGETS if quick else TARGETS)
    if methods is None and quick:
        own = [name for name in known_methods() if name not in built_in_methods()]
        methods = [*QUICK_METHODS, ("lrp", {"rule": "lrp-gamma"}), *own]
    entrants, shards_go_to = read_entrants(methods), engine_named(engine, workers)
    with BoardFolder(Path(out), number) as folder:
        run = BoardRun(folder, plan_networks(counts), entrants, number)
        with progress_bar(progress, len(run.networks), "leaderboard", "network") as advance:
            advance(sum(not run.missing(planned) for planned in run.networks))
            run.run(shards_go_to, lambda _: advance(1))
        board = Board(run.lines(), notes, versions())
        board.to_parquet(folder.path / "results.parquet")
        board.page(folder.path / "index.html", times=False)
        board.times_to_parquet(folder.path / "times.parquet")
        board.page(folder.path / "cost.html")
    return board


def _read_data(
    given: Sequence[str] | None, networks: int | None, *, quick: bool
) -> tuple[dict[str, int], tuple[str, ...]]:
    """How many networks of which data sets, and what was left out, in words."""
    networks = whole_number("networks", networks, at_least=1, or_none="for 50, 20 or 10", such_as=20)
    if isinstance(given, str):
        raise SettingError(f"`data` must be a list of names, got {given!r}. Use data=[{given!r}].")
    notes: tuple[str, ...] = ()
    if given is None:
        names = [*QUICK_DATA, *datasets.registered()] if quick else [n for n in datasets.names() if n not in LEFT_OUT]
        if "sentiment_trees" in names and not is_folder(Path(os.environ.get(VARIABLE) or ".") / FOLDER):
            names.remove("sentiment_trees")
            notes = (f"sentiment_trees is left out: there is no folder {FOLDER} where {VARIABLE} points.",)
    else:
        names = [one_of("data set", name, datasets.names()) for name in given]
    if not names:
        raise SettingError("`data` must name at least one data set. Use data=['infection'], for example.")
    usual = {name: QUICK_NETWORKS if quick else NETWORKS.get(name, OTHERS) for name in names}
    return ({name: networks or usual[name] for name in names}, notes)

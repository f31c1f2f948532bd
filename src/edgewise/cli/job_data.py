"""The data of a job of the command line, read again: the ids, names, classes and labels that its page and its lists carry."""

import os
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from edgewise.cli.folder_trust import asked_by, is_unpickled
from edgewise.cli.options import CommonOptions
from edgewise.cli.read.data import read_data
from edgewise.cli.read.graphs import Graphs
from edgewise.cli.read.targets import read_type
from edgewise.errors import EdgewiseError, FileError
from edgewise.files import VARIABLE
from edgewise.jobs.job_folder import read_manifest
from edgewise.text import typed_name

if TYPE_CHECKING:
    import edgewise as ew


def texts_of_job(folder: Path) -> tuple[dict[str, Any], str | None]:
    """`class_names`, `node_names` and `labels` for `Job.page`, and otherwise a sentence that says why there are none."""
    graphs, note = _graphs(folder)
    if graphs is None:
        return {}, note
    return {
        "class_names": graphs.class_names,
        "node_names": graphs.page_names if graphs.is_one else None,
        "labels": whole_labels(graphs.labels),
    }, None


def target_names(job: "ew.jobs.Job") -> Callable[[Any], str]:
    """A function from a target of a job to what a reader sees: its id and name, as far as the data has them."""
    graphs, _ = _graphs(job.path)
    names = None if graphs is None else graphs.page_names

    def called(index: Any) -> str:
        if graphs is None or graphs.task != "node":
            return str(index)
        if graphs.explained is not None:
            return typed_name(graphs.explained, index, (names or {}).get(graphs.explained))
        return str(names[index]) if names else str(index)

    return called


def whole_labels(labels: Tensor | None) -> Tensor | None:
    """Labels as whole numbers, −1 where there is none; None where they are no classes.

    >>> import torch
    >>> whole_labels(torch.tensor([1.0, float("nan")])), whole_labels(torch.tensor([0.5]))
    (tensor([ 1, -1]), None)
    """
    if labels is None or not labels.is_floating_point():
        return labels
    known = labels.nan_to_num(nan=-1.0)
    return known.long() if bool((known == known.round()).all()) else None


def _graphs(folder: Path) -> tuple[Graphs | None, str | None]:
    """The data, of a typed graph about the explained type; or why it is not there."""
    found = read_manifest(folder)
    if found is None or found["identity"].get("kind") != "command line":
        return None, None
    try:
        asked, _ = asked_by(folder, found, {})
        graphs = _read(asked, str(found.get("cwd") or os.getcwd()))
        hashes = found["identity"].get("hashes")
        if not isinstance(hashes, dict) or hashes.get("data") != graphs.digest:
            return None, "Without names: the data is not that of the job any more."
        if graphs.types is not None and graphs.task == "node" and not asked.link:
            graphs, _ = read_type(asked.index, graphs)  # labels, and names of classes, are those of the explained type
    except (EdgewiseError, OSError, ValueError) as error:  # a ValueError: a name that no folder can have
        return None, f"Without names: {str(error).splitlines()[0]}"
    return graphs, None


def _read(asked: CommonOptions, folder: str) -> Graphs:
    """The data that the folder of a job names; PyG, which unpickles its data sets, reads the user's own root alone."""
    task = "link" if asked.link and asked.task is None else asked.task
    if not is_unpickled(asked.data):
        with chdir(folder):
            return read_data(asked.data, None, task, asked.seed)
    own = os.environ.get(VARIABLE, "")
    if asked.root is not None and Path(folder, asked.root).resolve() != Path(own).resolve():
        raise FileError(
            f"PyG would unpickle {asked.data} in {asked.root}. If that is yours, set {VARIABLE}={asked.root}."
        )
    return read_data(asked.data, None, task, asked.seed)

"""`Job.page`: what a user gives is read and checked, the facts are collected, and the file is written."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.arguments import shown, whole_number
from edgewise.arrays import read_tensor
from edgewise.errors import FileError, InputError
from edgewise.files import can_be_written, write_whole
from edgewise.jobs.job_folder import read_manifest
from edgewise.jobs.summary.job_facts import JobFacts, facts_of
from edgewise.jobs.summary.job_names import JobNames
from edgewise.jobs.summary.job_page import JobPage

if TYPE_CHECKING:
    from edgewise.jobs.job import Job


def write_job_page(
    job: "Job",
    path: Path,
    other: "Job | str | Path | None",
    first: int,
    class_names: Any,
    node_names: Any,
    labels: Any,
    title: str | None,
) -> Path:
    """Write the page of a job; the arguments are those of `Job.page`."""
    first = whole_number("first", first, at_least=0, such_as=30)
    if not can_be_written(path):
        raise FileError(
            f"{shown(str(path))} cannot be written. Use the name of a file, such as job.html, in a folder that exists."
        )
    theirs = _opened(other)
    if theirs is not None and theirs.level != job.level:
        raise InputError(
            f"`other` must be a job at the same level, {job.level!r}, got one at level {theirs.level!r}. Run it again with "
            f"level={job.level!r}."
        )
    manifest = read_manifest(job.path)
    if manifest is None:
        raise FileError(f"{job.path} is not the folder of a job any more.")
    facts = facts_of(job, theirs)
    names = JobNames.read(facts, manifest, class_names, node_names)
    page = JobPage(job, facts, names, theirs, _labels(labels, job, facts, manifest), first, title).html()
    write_whole(path, lambda file: file.write(page.encode()))
    return path


def _opened(other: "Job | str | Path | None") -> "Job | None":
    from edgewise.jobs.job import open_job

    return open_job(other) if isinstance(other, (str, Path)) else other


def _labels(given: Any, job: "Job", facts: JobFacts, manifest: dict[str, Any]) -> Tensor | None:
    """`[n]`: the labels of the explained targets; None if there are none, or if the job explains other classes."""
    asked = manifest["identity"].get("question", {}).get("target")
    if given is None or asked not in (None, "predicted") or job.index.dim() != 1:
        return None
    try:
        labels = read_tensor(given).view(-1)
    except (TypeError, ValueError, RuntimeError):
        labels = torch.empty(0)
    if labels.is_floating_point() or labels.is_complex() or len(labels) <= int(job.index.max()):
        raise InputError(
            f"`labels` must hold a class for every node or graph, {int(job.index.max()) + 1} or more, got {shown(given)}. "
            "Use labels=data.y."
        )
    return labels[job.index[facts.targets.position.long()]].long()

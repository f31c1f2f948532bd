"""What `edgewise job` asks, read from its options: in the process of the command, and again in each of its workers.

A worker gets the options, not the model: it imports the model by its path and reads weights and data from their files, whose
hashes must be those that the command has seen.
"""

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

import edgewise as ew
from edgewise.algorithms.registry import Method, find_method
from edgewise.arguments import whole_number
from edgewise.cli.method_option import method_for
from edgewise.cli.options import CommonOptions, import_plugins, story_of
from edgewise.cli.read.cli_question import CliQuestion, read_question
from edgewise.cli.terminal import Voice
from edgewise.errors import FileError
from edgewise.files import is_folder, versions
from edgewise.jobs.explanation_job import JobQuestion, TolerantWork
from edgewise.jobs.gpu_claim import on_own_gpu
from edgewise.jobs.plan import costs_of
from edgewise.jobs.posed_targets import posed_targets
from edgewise.jobs.shard_run import Remake
from edgewise.jobs.store_shards import StoreShards, read_neighbors
from edgewise.question.source_question import SourceQuestion
from edgewise.store.store_source import source_of


def job_question(asked: CommonOptions, how: Mapping[str, Any], voice: Voice) -> JobQuestion:
    """Read everything that a job needs; `how` has its method, level, top and settings."""
    question = read_question(asked, voice)
    if isinstance(question.graphs.data, ew.GraphStore):
        question.graphs.data.verify()
    method = method_for(question, how["method"], how["level"], voice)
    hashes = dict(question.hashes)
    # What `auto` stands for is measured, so it is not decided twice: such a job gets into its workers by fork.
    chooses = find_method(how["method"], how["level"]).chooses
    return JobQuestion(
        identity={
            "kind": "command line",
            "question": story_of(asked, **how),
            "hashes": hashes,
            "versions": versions(),
        },
        index=question.stored_index,
        costs=_costs(question),
        method=method.name,
        level=how["level"],
        explain=_explaining(question, method, how),
        more={"cwd": os.getcwd()},
        remake=None if chooses else Remake(partial(job_work, asked, how, hashes, os.getcwd()), from_files=True),
    )


def job_work(
    asked: CommonOptions, how: Mapping[str, Any], hashes: Mapping[str, str | None], folder: str
) -> TolerantWork:
    """The work of a job in a fresh process, perhaps on another machine: from the same files, named as seen from `folder`."""
    if not is_folder(Path(folder)):
        raise FileError(
            f"{socket.gethostname()} does not see {folder}, whose files the job names. Use one that all workers share."
        )
    with chdir(folder):
        import_plugins(asked)
        question = read_question(asked, Voice(quiet=True))
    if dict(question.hashes) != hashes:
        changed = ", ".join(name for name, found in question.hashes.items() if found != hashes.get(name))
        raise FileError(f"The files of the job have changed while it runs ({changed}). Begin it again in a new folder.")
    method = find_method(how["method"], how["level"])
    explain = on_own_gpu(_explaining(question, method, how), asked.device)
    return TolerantWork(explain, question.stored_index, method.name, how["level"], ".parquet")


def _explaining(question: CliQuestion, method: Method, how: Mapping[str, Any]) -> Callable[[slice], ew.ExplanationSet]:
    """Explains some of the targets."""
    if isinstance(question.graphs.data, ew.GraphStore):
        return _explaining_store(question, method, how)

    def explain_some(positions: slice) -> ew.ExplanationSet:
        found = ew.explain(
            question.model, question.graphs.data, question.targets(positions), method=method,
            level=how["level"], top=how["top"], target=question.classes_of(positions), seed=question.asked.seed,
            **question.options, **how["settings"],
        )  # fmt: skip
        assert isinstance(found, ew.ExplanationSet)  # a list was asked for
        return found

    return explain_some


def _costs(question: CliQuestion) -> Tensor:
    """What each target costs, about."""
    data = question.graphs.data
    data = source_of(data, question.graphs.explained or "") if isinstance(data, ew.GraphStore) else data
    return costs_of(data, question.index, question.graphs.task)


def _explaining_store(
    question: CliQuestion, method: Method, how: Mapping[str, Any]
) -> Callable[[slice], ew.ExplanationSet]:
    """The same of a graph on disk: one question goes from neighbourhood to neighbourhood."""
    options = dict(question.options)
    memory, store = options.pop("memory"), question.graphs.data
    asked = {"forward": None, "without_itself": False, **options}
    every = question.targets(slice(None))
    posed, targets = posed_targets(question.model, store, every, question.classes, asked, memory)
    assert isinstance(posed, SourceQuestion)
    told = {"method": method, "level": how["level"], "top": how["top"], "seed": question.asked.seed, "memory": memory}
    costs = _costs(question)
    audit = whole_number("audit", how.get("audit", 1), at_least=1, such_as=20)
    hops = read_neighbors(how.get("neighbors"))
    return StoreShards(posed, targets, costs, question.classes, {**told, **how["settings"]}, audit, hops)

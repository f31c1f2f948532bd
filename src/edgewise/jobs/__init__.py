"""Jobs: long work in shards that survives being killed. `run` and `open` are for users; read `shard_run.py` first.

A job is a folder (`job_folder.py`) with a manifest, a journal, a lock and a file for each finished shard. The command line's
`--out` is such a job, too, in a hidden folder that goes when its results are there (`publication.py`).
"""

from pathlib import Path
from typing import TYPE_CHECKING

from edgewise._lazy import lazy_names
from edgewise.contract import checked

_WHERE = {"run": "edgewise.jobs.front_door", "Job": "edgewise.jobs.job", "JobStatus": "edgewise.jobs.job"}

__all__ = ["open", *_WHERE]

if TYPE_CHECKING:
    from edgewise.jobs.front_door import run as run
    from edgewise.jobs.job import Job as Job
    from edgewise.jobs.job import JobStatus as JobStatus


@checked
def open(path: str | Path) -> "Job":  # noqa: A001 - ew.jobs.open reads as it should
    """Open the folder of a job, finished or not, to read it: `[i]`, `.of(node)`, `.to_frame(...)`, `.status`.

    >>> import tempfile
    >>> from edgewise.examples import path_model
    >>> from edgewise.jobs import run
    >>> model, data = path_model(gains=[2.0, 3.0])           # 0 ─2→ 1 ─3→ 2
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = run(model, data, index=[1, 2], out=f"{folder}/job")
    ...     open(f"{folder}/job").of(2).scores
    tensor([6., 6.])
    """
    from edgewise.jobs.job import open_job

    return open_job(path)


__getattr__, __dir__ = lazy_names(__name__, _WHERE)

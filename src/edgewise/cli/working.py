"""What `explain` and `walks` have in common: pieces of work, an end that may come early, and a page."""

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from edgewise.cli.asked import Asked
from edgewise.cli.guarding import Interrupted
from edgewise.cli.saying import Voice
from edgewise.cli.writing.claims import claim_page, claim_result
from edgewise.errors import EdgewiseError, missing_extra

if TYPE_CHECKING:
    from edgewise.cli.reading.subject import Subject
    from edgewise.cli.writing.keeping import Destination

Result = TypeVar("Result")
PAGE_TARGETS = 50
_NOT_ASKED = ("json", "quiet", "debug")


@dataclass(frozen=True)
class Output:
    """Where a command writes; looked at before the long work."""

    out: Path | None
    page: Path | None
    force: bool

    def claim(self, asked: Asked) -> None:
        """Refuse what could not be written in the end."""
        inputs = [Path(asked.data).expanduser(), *([asked.weights] if asked.weights else [])]
        if self.out is not None:
            claim_result(self.out, inputs, force=self.force)
            if self.out.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
                raise missing_extra("pyarrow", "table", "A .parquet file")
        if self.page is not None:
            claim_page(self.page, inputs, force=self.force)
            if importlib.util.find_spec("bokeh") is None:
                raise missing_extra("bokeh", "page", "A page")


def question(asked: Asked, **more: Any) -> dict[str, Any]:
    """What was asked, ready for JSON: the same question has the same dict."""
    shared = {field.name: getattr(asked, field.name) for field in fields(asked) if field.name not in _NOT_ASKED}
    return {name: str(value) if isinstance(value, Path) else value for name, value in {**shared, **more}.items()}


def page_settings(story: dict[str, Any], subject: "Subject") -> dict[str, Any]:
    """What a page says about its making: the question as it was typed, and the hashes."""
    typed = {name.replace("_", " "): value for name, value in story.items() if value not in (None, {}, [])}
    return {**typed, **{f"SHA-256 of {name}": value for name, value in subject.hashes.items() if value}}


@dataclass
class Work(Generic[Result]):
    """Pieces that were finished, and what stopped the rest."""

    parts: list[Result]
    done: int
    seconds: float
    stopped: BaseException | None = None


def work_through(
    voice: Voice, title: str, total: int, work: Callable[[slice], Result], earlier: Sequence[Result] = (), done: int = 0
) -> Work[Result]:
    """Every piece; an interruption or an error ends it early, and is handed back with what is finished."""
    from edgewise.cli.pieces import in_pieces

    found = Work(list(earlier), done, 0.0)
    start = time.perf_counter()
    try:
        with voice.progress(title, total, done) as tell:

            def told(finished: int) -> None:
                found.done = finished
                tell(finished)

            for piece in in_pieces(total, work, told, done):
                found.parts.append(piece)
    except (KeyboardInterrupt, Exception) as stop:
        found.stopped = stop
    found.seconds = round(time.perf_counter() - start, 3)
    return found


def end_early(work: Work[Any], destination: "Destination | None", save: Callable[[Path], None]) -> None:
    """Keep what is finished, say where, and end as it ended."""
    stop, kept = work.stopped, ""
    assert stop is not None
    if destination is not None and work.done:
        path = destination.keep(save, work.done, seconds=work.seconds)
        again = " The same command goes on from there." if destination.kept() else ""
        kept = f" {work.done} of {destination.total} targets are finished and kept in {path}.{again}"
    if isinstance(stop, KeyboardInterrupt):
        raise Interrupted(f"Stopped.{kept or ' Nothing was written.'}") from stop
    if isinstance(stop, EdgewiseError) and kept:
        raise type(stop)(f"{stop}{kept}") from stop
    raise stop


def write_page(subject: "Subject", path: Path, voice: Voice, settings: dict[str, Any], **options: Any) -> Path:
    """The page about the first targets; more than some dozens are too many to look at."""
    import edgewise as ew

    if len(subject.index) > PAGE_TARGETS:
        voice.note(f"The page shows the first {PAGE_TARGETS} of {len(subject.index)} targets.")
    classes = subject.classes_of(slice(PAGE_TARGETS))
    classes = classes.tolist() if hasattr(classes, "tolist") else classes
    asked, graphs = subject.asked, subject.graphs
    written: Path = ew.write_page(  # type: ignore[attr-defined,unused-ignore]
        path,
        subject.model,
        graphs.data,
        subject.index[:PAGE_TARGETS].tolist(),
        target="predicted" if classes is None else classes,
        node_names=graphs.names,
        class_names=graphs.class_names,
        settings=settings,
        seed=asked.seed,
        device=asked.device,
        **{name: value for name, value in subject.options.items() if name != "device" and value not in (None, "logit")},
        **options,
    )
    return written

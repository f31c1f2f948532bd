"""A run of `explain` or `walks`, before its work and after it: read; write, or keep what is finished."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgewise.cli import showing
from edgewise.cli.asked import Asked
from edgewise.cli.reading.subject import Subject, read_subject
from edgewise.cli.saying import Voice
from edgewise.cli.working import Output, Work, end_early, page_settings, question, write_page
from edgewise.cli.writing.keeping import Destination


@dataclass(frozen=True)
class Run:
    """What was read, and where the result goes."""

    subject: Subject
    voice: Voice
    story: dict[str, Any]
    destination: Destination | None
    page: Path | None

    @classmethod
    def start(cls, command: str, asked: Asked, voice: Voice, output: Output, how: dict[str, Any]) -> "Run":
        """Read everything; `how` is what this command is asked besides."""
        subject = read_subject(asked, voice)
        story, total = question(asked, **how), len(subject.index)
        destination = Destination(output.out, command, story, subject.hashes, total) if output.out else None
        return cls(subject, voice, story, destination, output.page)

    @property
    def targets(self) -> int:
        """How many are worked on: all, or without a file to write them to only those that will be shown."""
        total = len(self.subject.index)
        everyone = self.destination is not None or self.subject.asked.json
        return total if everyone else min(total, showing.SHOWN_TARGETS)

    def finish(self, work: Work[Any], save: Callable[[Path], None], paged: dict[str, Any]) -> dict[str, Any]:
        """Write the result, and the page with the options `paged`, and say so; work that stopped ends here."""
        if work.stopped is not None:
            end_early(work, self.destination, save)
        written: dict[str, Any] = {"seconds": work.seconds}
        if self.destination is not None:
            written |= self.destination.write(save, seconds=work.seconds)
            self.voice.note(f"Written: {self.destination.path}")
        if self.page is not None:
            settings = page_settings(self.story, self.subject)
            written["page"] = str(write_page(self.subject, self.page, self.voice, settings, **paged))
            self.voice.note(f"Written: {self.page}")
        return written

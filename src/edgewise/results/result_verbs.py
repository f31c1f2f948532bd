"""What one explanation and a set of them can both do: files, tables, pages, notebooks."""

from pathlib import Path
from typing import Any

from edgewise.contract import checked


class ResultVerbs:
    """The verbs that an `Explanation` and an `ExplanationSet` share."""

    @checked
    def save(self, path: str | Path) -> None:
        """Write to `.npz`, or to `.parquet` (extra `table`); `ew.load(path)` reads it back, lossless, as a set."""
        from edgewise.results.score_rows import set_of
        from edgewise.results.storage import save

        save(set_of(self), path)

    @checked
    def to_rows(self, what: str = "edges") -> list[dict[str, Any]]:
        """A dict for every score other than zero: `index`, `target`, at layer level `layer`, `column`, the ends, `score`.

        Those of a set begin with their `position` in it. `what="self"` gives the self scores instead, with `node`.
        """
        from edgewise.results.export import rows

        return rows(self, what)  # type: ignore[arg-type]

    @checked
    def to_frame(self, what: str = "edges") -> Any:
        """The rows of `to_rows` as a pandas data frame. Needs `edgewise[table]`."""
        from edgewise.results.export import frame

        return frame(self, what)  # type: ignore[arg-type]

    @checked
    def page(self, path: str | Path, model: Any, data: Any, **options: Any) -> Path:
        """One HTML file about the same targets, classes and method; the model is asked again. Options as in `ew.write_page`."""
        from edgewise.api.write_page import write_page
        from edgewise.arrays import asked_index, plain_index
        from edgewise.results.score_rows import as_set

        found: Any = as_set(self, "a page")  # type: ignore[arg-type]
        index = asked_index(found.index) if found.types is None else found.types.asked(plain_index(found.index))
        known = {
            name: found.settings[name] for name in ("task", "mode", "of", "without_itself") if name in found.settings
        }
        if known.get("mode") == "regression":
            known.pop("of", None)
        asked = {"methods": [found.method], "target": found.target.tolist(), **known}
        return write_page(path, model, data, index, **{**asked, **options})

    def _repr_html_(self) -> str:
        from edgewise.report.notebook import html_of

        return html_of(self)  # type: ignore[arg-type]

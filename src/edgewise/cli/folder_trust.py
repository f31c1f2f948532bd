"""What the folder of a job asks for: read from its manifest, shown, and run only if the user stands by it.

A manifest names the module of a model, and plugins: importing them runs their code. It may also name the root of a data set
of PyG, which unpickles what lies there. Whoever goes on with a folder names models and plugins again, or says that the folder
is to be trusted; before that nothing is imported, and nothing unpickled.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from importlib.machinery import PathFinder
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from edgewise.cli.options import REAL, CommonOptions, data_key
from edgewise.errors import FileError

_REPORT = ("json", "quiet", "debug")
_HOW: dict[str, Any] = {
    "method": str, "level": str, "top": int | None, "settings": dict, "audit": int, "neighbors": list[int] | None,
}  # fmt: skip
"""What belongs to the explanation and not to the question, and of which type it is."""
_NEEDED = ("method", "level", "top", "settings")


def asked_by(
    folder: Path, manifest: Mapping[str, Any], report: Mapping[str, Any]
) -> tuple[CommonOptions, dict[str, Any]]:
    """The options that the job was begun with, and how it explains; refused if they cannot be those of a command."""
    hints = get_type_hints(CommonOptions)
    known = {field.name: field.default for field in fields(CommonOptions) if field.name not in _REPORT}
    story = manifest["identity"].get("question")
    plain = isinstance(story, dict) and set(story) <= {*known, *_HOW}
    needed = (*_NEEDED, *(name for name, default in known.items() if default is MISSING))
    if (
        not plain
        or not all(_fits(story[name], _HOW.get(name) or hints[name]) for name in story)
        or set(needed) - set(story)
    ):
        raise FileError(f"{folder} does not say how it was asked. Begin the job again in a new folder.")
    how = {name: story[name] for name in _HOW if name in story}
    asked = {name: value for name, value in story.items() if name not in _HOW}
    paths = {name: Path(value) for name, value in asked.items() if value is not None and Path in get_args(hints[name])}
    return CommonOptions(**{**asked, **paths, **report}), how


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value of JSON is of the type that an option has; paths are texts.

    >>> _fits("weights.pt", Path | None), _fits(["a"], list[str] | None), _fits(True, int), _fits(3, str)
    (True, True, False, False)
    """
    if get_origin(kind) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(kind))
    if get_origin(kind) is list:
        return isinstance(value, list) and all(_fits(one, get_args(kind)[0]) for one in value)
    return type(value) is (str if kind is Path else kind)


def is_unpickled(data: str) -> bool:
    """Whether a name stands for a data set that PyG reads, in its own way.

    >>> is_unpickled("cora"), is_unpickled("graph.npz")
    (True, False)
    """
    return data_key(data) in map(data_key, REAL)


def refuse_unnamed(
    folder: Path, asked: CommonOptions, model: str | None, plugin: Sequence[str], *, trusted: bool
) -> list[str]:
    """Refuse to import what the folder names and the user does not; sentences about what will be imported, and from where.

    Args:
        folder: The folder of the job.
        asked: What it asks for.
        model: The `--model` of this command.
        plugin: Its `--plugin`s.
        trusted: Whether it has `--trust-folder`.
    """
    if model is not None and model != asked.model:
        raise FileError(
            f"{folder} was begun with --model {asked.model}, not {model}. Begin another job in a new folder."
        )
    named = {
        f"the model {asked.model}{_arguments(asked.model_args)}": (asked.model, model == asked.model),
        **{f"the plugin {one}": (one, one in plugin) for one in asked.plugin or ()},
    }
    code = {what: (place, again) for what, (place, again) in named.items() if place is not None}
    said = [f"{what}, from {where_is(place)}" for what, (place, _) in code.items()]
    rooted = asked.root is not None and is_unpickled(asked.data)
    said += (
        [f"the data set {asked.data}, which PyG unpickles, from {Path(asked.root or '').resolve()}"] if rooted else []
    )
    if trusted or (not rooted and all(again for _, again in code.values())):
        return said
    again = [
        *(["--model", asked.model] if asked.model else []),
        *(part for one in asked.plugin or () for part in ("--plugin", one)),
    ]
    ways = "--trust-folder" if rooted else f"{shlex.join(again)}, or --trust-folder"
    raise FileError(
        f"{folder} asks to run code: {'; '.join(said)}. Nothing was imported. If that is yours, say so: {ways}."
    )


def _arguments(given: Sequence[str] | None) -> str:
    return f" with {', '.join(given)}" if given else ""


def where_is(name: str) -> str:
    """The file that `file.py:factory`, `package.module:factory` or a module stands for, found without running any code.

    >>> where_is("no_such_module:make")
    'no file that can be found'
    """
    place = name.rpartition(":")[0] or name
    try:
        if place.endswith(".py"):
            return str(Path(place).resolve())
        found = PathFinder.find_spec(place.partition(".")[0], [str(Path.cwd()), *sys.path])
    except (OSError, ValueError):  # a name that no file can have
        found = None
    if found is None:
        return "no file that can be found"
    inner = next(iter(found.submodule_search_locations or ()), None)
    return str(found.origin or inner) if inner is None or "." not in place else str(Path(inner, *place.split(".")[1:]))

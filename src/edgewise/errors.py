"""One small family of exceptions: what came, what is needed, what to type."""

_LONGEST = 1400


class EdgewiseError(ValueError):
    r"""Anything that Edgewise refuses; catch this one to catch them all.

    What came may be a name out of a file: control characters, which could act in a terminal, are written as escapes.

    >>> str(EdgewiseError("no column \x1b[31m"))
    'no column \\x1b[31m'

    What came may be long, too: of a long text the beginning and the end are said.
    """

    def __str__(self) -> str:
        text = super().__str__()
        text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 300]} … {text[-300:]}"
        return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


class InputError(EdgewiseError):
    """The graph, the index or the class does not fit the model or itself."""


class PositionError(InputError, IndexError):
    """A position outside a set; an `IndexError`, too, so that it ends a loop as in a list."""


class ModelError(EdgewiseError, RuntimeError):
    """The model cannot be explained as it is: no messages, a fused path, a compiled module, an error of its own."""


class SettingError(EdgewiseError):
    """An unknown method, level or setting, or a value outside its range."""


class NoRoomError(EdgewiseError, MemoryError):
    """What a call asks for does not fit into the memory of this machine."""


class FileError(EdgewiseError):
    """A file that cannot be read or written as an explanation."""


class ClusterError(EdgewiseError, RuntimeError):
    """A cluster that does not answer, is lost, or cannot take the work; the same call goes on from what is finished."""


class MissingExtraError(EdgewiseError, ImportError):
    """An optional dependency is not installed; the text names the extra."""


class LocalityWarning(UserWarning):
    """The model is not local, so every target is explained on the whole graph: slower and right."""


class OutputWarning(UserWarning):
    """What the model returns looks like probabilities, but nothing says so."""


class KinkWarning(UserWarning):
    """The model has a kink at the features that are explained, or a step on the way: gradients there say little."""


class IncompleteWarning(UserWarning):
    """A table of results was filtered: some targets are not in it."""


class VersionWarning(UserWarning):
    """Results that another version of Edgewise wrote: the numbers are those of that version."""


class StaleQuestionError(EdgewiseError):
    """The model or the data have changed since the question was asked."""


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """The error for an optional package that is absent."""
    return MissingExtraError(
        f"{purpose} needs {package}, which is not installed. Run: pip install 'edgewise[{extra}]' "
        f"(in a checkout: pip install '.[{extra}]')"
    )

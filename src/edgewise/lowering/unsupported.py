"""The reason why a model is run as it is."""


class Unsupported(Exception):  # noqa: N818 (not an error: another way is taken)
    """A part of the model that is not known; never shown to the user but in the debug log."""

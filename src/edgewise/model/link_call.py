"""How a model of links is called: on a graph and pairs of its nodes, in one piece, or cut behind its last message layer.

`LinkForward` is the whole call. `EncoderForward` stops at the last layer and gives what it made of every node; `DecoderForward`
gives the model such rows in place of that layer, so that what comes behind it makes scores of pairs of them.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.errors import ModelError
from edgewise.graph.pair_copies import with_pairs
from edgewise.model.borrow import ours
from edgewise.model.call import check_kind, takes_data
from edgewise.model.call_arguments import absent_names, arguments_for, required_names

PAIRS = "edge_label_index"
"""PyG's name for the pairs whose scores are asked for."""


@dataclass(frozen=True)
class LinkForward:
    """The model's scores of `data.link_pairs`; `forward` is the user's own way to call it, with the pairs `[2, T]` behind."""

    forward: Callable[..., Tensor] | None = None

    def __call__(self, model: nn.Module, data: Data) -> Any:
        """Call the model as its signature asks for."""
        pairs = data.link_pairs.ends
        if self.forward is not None:
            return self.forward(model, data, pairs)
        names = names_of(model.forward)
        if PAIRS in names:
            args, named = _arguments(model.forward, data)
            return model(*args, **{**named, PAIRS: pairs})
        if can_encode(model):
            args, named = _arguments(model.encode, data)
            z = model.encode(*args, **named)  # type: ignore[operator]
            return model.decode(z, pairs)  # type: ignore[operator]
        if takes_data(model):
            data = with_pairs(data, pairs.t())
            data[PAIRS] = pairs
            return model(data)
        raise ModelError(
            f"{type(model).__name__} does not say how it scores pairs: its forward must name {PAIRS}, or it must have encode "
            f"and decode. Use forward=lambda model, data, pairs: ..., where pairs is [2, T]."
        )

    def has_decoder(self, model: nn.Module) -> bool:
        """Whether `model.decode` makes the scores."""
        return self.forward is None and PAIRS not in names_of(model.forward) and can_encode(model)


def can_encode(model: nn.Module) -> bool:
    """Whether a model has an encoder and a decoder to call."""
    return all(callable(getattr(model, name, None)) for name in ("encode", "decode"))


def names_of(function: Any) -> list[str]:
    """The names of a function's arguments."""
    return list(inspect.signature(function).parameters)


def _arguments(function: Any, data: Data) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a function is called with, but for the pairs; refused if it asks for something that the data have not."""
    names, required = (
        [name for name in found if name != PAIRS] for found in (names_of(function), required_names(function))
    )
    if absent := absent_names(names, required, data):
        raise ModelError(
            f"{function.__qualname__} asks for `{absent[0]}`, and the data has no {absent[0]}: set data.{absent[0]}, or say "
            f"how the model is called: forward=lambda model, data, pairs: model(...)."
        )
    return arguments_for(names, required, data)


@dataclass
class SharedPass:
    """A pass of the whole model on all nodes, with the user's own features `x`, of which an encoder reads the first part.

    So a pass that proves the encoder at some weights gives the scores at these weights, too.
    """

    x: Tensor
    pairs: Tensor
    """`[T, 2]`."""
    rows: Any = None
    """What the last layer made in the latest such pass."""
    scores: Any = None
    """What the model returned."""

    def is_on(self, data: Data) -> bool:
        """Whether data have these very features: a cut, and a pass that is written down, have copies instead."""
        return data.x is self.x


@dataclass(frozen=True)
class EncoderForward:
    """What the last layer of a model of links makes of every node, `[N, d]`; nothing behind it is run, or for `shared` all."""

    link: LinkForward
    calls: int
    """How many calls of layers a pass has."""
    shared: SharedPass | None = None

    def __call__(self, model: nn.Module, data: Data) -> Any:
        """Run the model up to its last layer; the pair that it is asked about does not matter."""
        pair = torch.zeros(
            1, 2, dtype=torch.long, device=data.edge_index.device
        )  # made either way: operations are counted
        if self.shared is not None and self.shared.is_on(data):
            return self._to_the_end(model, data, self.shared)

        def stop(output: Any) -> Any:
            raise _LastLayer(output)

        try:
            with _at_call(model, self.calls, stop):
                self.link(model, with_pairs(data, pair))
        except _LastLayer as seen:
            return seen.output
        raise ModelError("The model made fewer calls of its layers than in its first run.")

    def _to_the_end(self, model: nn.Module, data: Data, shared: SharedPass) -> Any:
        def look(output: Any) -> None:
            shared.rows = output

        shared.rows = shared.scores = None
        with _at_call(model, self.calls, look):
            scores = self.link(model, with_pairs(data, shared.pairs))
        if shared.rows is None:
            raise ModelError("The model made fewer calls of its layers than in its first run.")
        shared.scores = scores
        return shared.rows


@dataclass(frozen=True)
class DecoderForward:
    """The model's scores of pairs of rows: what its last layer returns is replaced by them."""

    link: LinkForward
    calls: int
    rows: Tensor
    """`[N, d]`: one for each node of the graph that the model is given."""
    is_direct: bool
    """Whether `model.decode` is called, which reads nothing but the rows; otherwise the whole model, on the nodes alone."""

    def __call__(self, model: nn.Module, data: Data) -> Any:
        """Run the model with other rows behind its last layer."""
        if self.is_direct:
            return model.decode(self.rows, data.link_pairs.ends)  # type: ignore[operator]

        def replaced(output: Any) -> Any:
            return (self.rows, *output[1:]) if isinstance(output, tuple) else self.rows

        with _at_call(model, self.calls, replaced):
            return self.link(model, data)


class _LastLayer(BaseException):
    """The last layer has run."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output


@contextmanager
def _at_call(model: nn.Module, number: int, then: Callable[[Any], Any]) -> Iterator[None]:
    """Do something with the output of a call of a message-passing layer, counted from 1; layers inside layers do not count."""
    depth = count = 0

    def enter(*_: Any) -> None:
        nonlocal depth
        depth += 1

    def leave(_: nn.Module, __: Any, output: Any) -> Any:
        nonlocal depth, count
        depth -= 1
        if depth:
            return None
        count += 1
        return then(output) if count == number else None

    layers = [module for _, module in check_kind(model)]
    handles = [module.register_forward_pre_hook(ours(enter)) for module in layers]
    handles += [module.register_forward_hook(ours(leave)) for module in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()

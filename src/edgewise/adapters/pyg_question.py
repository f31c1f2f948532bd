"""PyGQuestion: what PyG's `Explainer` asks, read once: some rows of what a model returns, and the number of each.

PyG speaks of rows of the output, whatever they are of: nodes, pairs, graphs. Which question of ours that is, is decided in
`pyg_graph.py` (one type of nodes) and `pyg_types.py` (several); that it is the same number is checked here, row by row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain.config import ModelConfig, ModelMode, ModelReturnType

from edgewise.errors import InputError, ModelError
from edgewise.graph.inputs import in_words, read_structure
from edgewise.model.call import ModelCall
from edgewise.model.twin import unwrapped, usable_model
from edgewise.question.equality import close

_MODES = {
    ModelMode.multiclass_classification: "multiclass",
    ModelMode.binary_classification: "binary",
    ModelMode.regression: "regression",
}
"""PyG's modes → ours."""
_NUMBERS = {ModelReturnType.raw: "logit", ModelReturnType.probs: "prob", ModelReturnType.log_probs: "log_prob"}
"""What PyG says that the model returns → the number that is explained."""


@dataclass(frozen=True, eq=False)
class PyGQuestion:
    """A call of PyG's `Explainer`: T rows of an output with R rows."""

    model: nn.Module
    x: Any
    """`[N, F]`, or a dictionary of them by node type."""
    edge_index: Any
    """`[2, E]`, or a dictionary of them by edge type."""
    extras: Mapping[str, Any]
    """The model's other arguments, by name."""
    config: ModelConfig
    output: Tensor
    """`[R, C]`: what the model returns."""
    rows: Tensor
    """`[T]`: the rows that are asked about."""
    classes: Tensor | None
    """`[T]`: their classes; None for a regression."""
    posed: dict[Any, Any] = field(default_factory=dict)
    """Questions of ours that were posed for it."""

    @classmethod
    def read(
        cls,
        model: nn.Module,
        x: Any,
        edge_index: Any,
        extras: Mapping[str, Any],
        config: ModelConfig,
        asked: tuple[Any, Any],
    ) -> "PyGQuestion":
        """Run the model (a twin of it) once, and read index and target, which are `asked`, against its output."""
        _check_kinds(x, edge_index)
        if isinstance(x, Tensor):
            read_structure(Data(x=x, edge_index=edge_index))
        output = model_output(model, x, edge_index, extras)
        target, index = asked
        rows = read_rows(index, len(output))
        if config.mode != ModelMode.regression:
            return cls(model, x, edge_index, extras, config, output, rows, _classes(target, len(output))[rows])
        if output.size(1) > 1:
            raise InputError(
                f"A regression with {output.size(1)} outputs has no one number to explain. Use a model that returns one of "
                f"them, or ew.explain(..., mode='regression', target=0) for the first."
            )
        return cls(model, x, edge_index, extras, config, output, rows, None)

    @property
    def number(self) -> dict[str, Any]:
        """The explained number, as arguments of `explain`; `forward` gives `logits`."""
        if self.classes is None:
            return {"mode": "regression", "output": "value", "target": 0}
        of = _NUMBERS[self.config.return_type]
        return {"mode": _MODES[self.config.mode], "output": "logit", "of": of, "target": self.classes}

    def logits(self, rows: Tensor) -> Tensor:
        """Numbers whose softmax (or sigmoid) is what the model returns; of raw outputs, those.

        A probability of exactly 0 or 1 becomes the last one before it that has a logit: its slope is 0 either way.
        """
        if self.config.return_type != ModelReturnType.probs:
            return rows
        limit = torch.finfo(rows.dtype)
        log_prob = rows.clamp(min=limit.tiny).log()
        if self.config.mode != ModelMode.binary_classification:
            return log_prob
        return log_prob - (1 - rows).clamp(min=limit.eps / 2).log()

    def value(self) -> Tensor:
        """`[T]`: the explained numbers, straight from what the model returns."""
        rows = self.output[self.rows]
        if self.classes is None:
            return rows[:, 0]
        if self.config.mode != ModelMode.binary_classification:
            return rows.gather(1, self.classes.to(rows.device).view(-1, 1)).view(-1)
        is_prob = self.config.return_type == ModelReturnType.probs
        other = 1 - rows[:, 0] if is_prob else -rows[:, 0]
        return torch.where(self.classes.to(rows.device) == 1, rows[:, 0], other)

    def is_answered_by(self, value: Tensor) -> bool:
        """Whether the numbers that were explained are those that PyG asked about."""
        true = self.value().detach().cpu()
        is_prob = self.classes is not None and self.config.return_type == ModelReturnType.probs
        scale = (
            torch.ones((), dtype=true.dtype) if is_prob else None
        )  # next to 0, a probability is as good as its logit
        return close(value.to(true.dtype), true, scale)

    def check(self, value: Tensor) -> None:
        """Refuse numbers that are not those that PyG asked about."""
        if not self.is_answered_by(value):
            raise ModelError(
                "The model gives other rows when it is run again on the same graph, so they cannot be explained. Does "
                "forward remember earlier calls, or draw random numbers? Explain it by ew.explain(model, data, ...) instead."
            )


def _check_kinds(x: Any, edge_index: Any) -> None:
    """Refuse anything but two tensors, or two dictionaries of tensors by type."""
    if isinstance(x, Tensor) and isinstance(edge_index, Tensor):
        return
    tables = [part for part in (x, edge_index) if isinstance(part, dict) and part]
    if len(tables) < 2 or not all(isinstance(one, Tensor) for part in tables for one in part.values()):
        raise InputError(
            f"`x` and `edge_index` must be two tensors, or two dictionaries of tensors by type, got {in_words(x)} and "
            f"{in_words(edge_index)}. Use data.x and data.edge_index, or data.x_dict and data.edge_index_dict."
        )


def model_output(model: nn.Module, x: Any, edge_index: Any, extras: Mapping[str, Any]) -> Tensor:
    """`[R, C]`: what the model returns for PyG's arguments; the model itself is not touched."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"`model` must be a torch.nn.Module, got {type(model).__name__}.")
    some = x if isinstance(x, Tensor) else next(iter(x.values()))
    example = Data(x=some)  # for error texts: the arguments are PyG's

    def run(ours: nn.Module) -> Tensor:
        with torch.no_grad():
            return ModelCall(ours, lambda module, _: module(x, edge_index, **extras)).own_output(example)

    return usable_model(unwrapped(model), run, tensors=True)[1].detach()


def read_rows(index: Any, size: int) -> Tensor:
    """`[T]`: rows of an output, from what PyG takes as an index: an int, a tensor of them, a mask, or None for all.

    >>> read_rows(torch.tensor([2, -1]), 4), read_rows(torch.tensor([True, False]), 2)
    (tensor([2, 3]), tensor([0]))
    """
    everything = torch.arange(size)
    if index is None:
        return everything
    try:
        chosen = everything[torch.as_tensor(index).detach().cpu()].view(-1)
    except (IndexError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"`index` must name rows of the model's output, 0 to {size - 1}, got {in_words(index)} ({error}). Use "
            f"index=3 or index=torch.tensor([3, 5])."
        ) from error
    if len(chosen) == 0:
        raise InputError(f"`index` must name at least one of the {size} rows of the model's output, got none.")
    return chosen


def _classes(target: Any, size: int) -> Tensor:
    """`[R]`: the class of every row, whole numbers."""
    given = torch.as_tensor(target).detach().cpu().reshape(-1)
    whole = given.long()
    if len(given) != size or not bool((whole == given).all()):
        raise InputError(
            f"`target` must have a class, a whole number, for each of the {size} rows of the model's output, got "
            f"{in_words(target)}. PyG picks those of `index` from it."
        )
    return whole

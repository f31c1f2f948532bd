"""What every question has, whatever the task."""

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.engines import Engine
from edgewise.errors import SettingError
from edgewise.graph.copies import Copies
from edgewise.graph.inputs import check_devices
from edgewise.model.borrow import Loan
from edgewise.model.call import ModelCall, check_model
from edgewise.model.hooks import Layers
from edgewise.model.trace import Trace
from edgewise.program.lowering import Lowering
from edgewise.question.target import Target

KEPT = 4  # a number in the forward pass is kept about this often: activation, its gradient, a product, a copy


class Question:
    """The question, checked. Node tasks ask a `Subject`; graph tasks run batches of graphs."""

    task: str
    graphs: list[Data]
    index: Tensor
    single: bool
    target: Target
    trace: Trace
    num_layers: int
    device: torch.device
    loan: Loan
    call: ModelCall
    lowering: Lowering | None = None

    @property
    def hops(self) -> int | None:
        """How far from its target an edge's receiver may be, counted in layers, to matter; None: any edge may matter."""
        return None

    def copies(self, positions: Tensor) -> list[Copies]:
        """The graphs to run the model itself on: one with a copy for every target, or one for each."""
        raise NotImplementedError

    def engine(self, positions: Tensor) -> Engine:
        """How to run the model for the targets at some positions of `index`."""
        raise NotImplementedError

    def borrowed(self) -> AbstractContextManager[None]:
        """The model, ours for a while; calls may nest. A lowered model that keeps to itself is not even touched."""
        if self.lowering is not None and not self.lowering.uses_model:
            return _grad_on()
        return self.loan.taken()

    def sizes(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of nodes and edges of the targets' graphs: one number if all live in one graph."""
        raise NotImplementedError

    def ends(self, positions: Tensor, owner: Tensor, column: Tensor) -> Tensor:
        """`[2, copies]`: the nodes of some columns of the graphs at `positions[owner]`."""
        if self.task == "node":
            return self.graphs[0].edge_index[:, column]
        parts = [self.graphs[int(self.index[i])].edge_index for i in positions.tolist()]
        sizes = torch.tensor([part.size(1) for part in parts], device=column.device)
        return torch.cat(parts, dim=1)[:, (sizes.cumsum(0) - sizes)[owner] + column]

    def source_edge_index(self, position: int) -> Tensor:
        """The `edge_index` of a target's graph, as the user gave it."""
        return self._sources[0 if self.task == "node" else int(self.index[position])]

    @property
    def edge_bytes(self) -> int:
        """About what a pass needs for one edge copy."""
        return KEPT * sum(call.message_width + 4 for call in self.trace.calls) * self.trace.output.element_size()

    @property
    def separable(self) -> list[bool]:
        """Per call: whether a self edge can be scored."""
        return [call.separable for call in self.trace.calls]

    _sources: list[Tensor]


@contextmanager
def _grad_on() -> Iterator[None]:
    with torch.inference_mode(mode=False), torch.enable_grad():
        yield


def sub_target(question: Question, positions: Tensor) -> Target:
    """The questions at some positions."""
    return question.target.select(positions.to(question.device))


# --- Model and graphs on one device ------------------------------------------------------------------------------------


def placed(model: Any, layers: Layers, graphs: list[Data], device: Any) -> tuple[Any, Layers, list[Data]]:
    """The model, its layers and the graphs on the device that was asked for, or where they are if they are together."""
    if device is not None:
        model, graphs = _moved(model, graphs, device)
        layers = check_model(model)
    check_devices(model, graphs[0])
    return model, layers, graphs


def _moved(model: Any, graphs: list[Data], device: Any) -> tuple[Any, list[Data]]:
    """Copies on a device; the user's stay where they are."""
    try:
        place = torch.device(device)
        if any(t.device != place for t in [*model.parameters(), *model.buffers()]):
            model = copy.deepcopy(model).to(place)
        return model, [copy.copy(graph).to(place) for graph in graphs]
    except (RuntimeError, AssertionError, TypeError) as error:
        text = f"device is {device!r}, which is not available: {error}. Leave it out, or type device='cpu'."
        raise SettingError(text) from error

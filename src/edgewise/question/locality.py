"""Whether nothing outside the cut matters: proved from the program, or confirmed by one pass over the whole graph.

Proved: every operation on features is known to work row by row, no row is known by its number (`row_origins.py`), every layer
is known, and the program that was read off a tiny cut is the program of the cut itself, constants included (`x * (100 /
x.size(0))` has another constant on each). Anything else is confirmed: passes over the whole graph must give the same values.
"""

import warnings
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.errors import LocalityWarning, ModelError
from edgewise.graph.cut import Cut, whole
from edgewise.graph.inputs import check_values
from edgewise.model.trace import Trace
from edgewise.model.weighted_model import WeightedGraph, WeightedModel
from edgewise.program.compile import compile_program
from edgewise.program.hop import CallPart
from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep
from edgewise.program.layers.base import Unsupported
from edgewise.program.mirror import mirrored
from edgewise.question.equality import close, random_weight
from edgewise.question.node_model import NodeModel
from edgewise.question.row_origins import RowOrigins

LARGEST_PASS = 4 * 2**30
"""Bytes of messages of a pass over the whole graph that is made for a confirmation, unless a budget of memory is given."""
LARGEST_UNKNOWN = 2**23
"""Edges of a graph that a model is run on although it did not run on a part of it."""


def is_proved(model: NodeModel, tiny: Trace, graph: Data) -> bool:
    """Whether the lowered program of a cut is certain to be the model's around every node; `tiny` was recorded on `graph`."""
    if (
        model.program is None
        or model.trace.operation_names != tiny.operation_names
        or model.trace.flows != tiny.flows
        or not _sizes_differ(model, tiny, graph)  # a constant made of a size would look the same
        or model.origins is None
    ):
        return False
    origins = RowOrigins.of(tiny, graph)
    if not (origins.is_apart and model.origins.is_apart and origins.agree(model.origins)):
        return False
    try:
        trace = model.output.shorten(tiny)
        about = (trace, graph) if trace.flow is not None else mirrored(trace, graph)
        return same_program(model.program, compile_program(*about))
    except (Unsupported, RuntimeError, TypeError, AttributeError, IndexError, KeyError):
        return False


def _sizes_differ(model: NodeModel, tiny: Trace, graph: Data) -> bool:
    """Whether the tiny cut has another number of nodes, of each kind; a kind that is there as a whole need not."""
    if tiny.typed is None:
        return bool(graph.num_nodes != model.graph.num_nodes)
    assert model.program is not None
    kinds = model.program.kinds
    assert kinds is not None
    sizes = ((len(a), len(b)) for a, b in zip(tiny.typed.kinds.nodes, kinds.nodes, strict=True))
    return all(a != b or b == whole for (a, b), whole in zip(sizes, tiny.typed.whole, strict=True))


def same_program(a: Program, b: Program) -> bool:
    """Whether two programs do the same, up to what belongs to nodes and edges of their graphs."""
    if len(a.steps) != len(b.steps) or a.output != b.output or a.num_calls != b.num_calls:
        return False
    return all(_same_step(one, other) for one, other in zip(a.steps, b.steps, strict=True))


def _same_step(a: RowStep | MessageStep, b: RowStep | MessageStep) -> bool:
    if isinstance(a, MessageStep) or isinstance(b, MessageStep):
        if not (isinstance(a, MessageStep) and isinstance(b, MessageStep)):
            return False
        sources = len(a.sources) == len(b.sources) and all(map(_same_source, a.sources, b.sources))
        return type(a.layer) is type(b.layer) and a.output == b.output and sources and _same_part(a.part, b.part)
    if _function(a.function) != _function(b.function) or (a.output, a.kind) != (b.output, b.kind):
        return False
    if len(a.leaves) != len(b.leaves):
        return False
    return all(_same_leaf(one, other) for one, other in zip(a.leaves, b.leaves, strict=True))


def _same_part(a: CallPart | None, b: CallPart | None) -> bool:
    """Whether two calls work between nodes of the same kinds; which columns they use is up to their graphs."""
    if a is None or b is None:
        return a is b
    return (a.senders, a.receivers) == (b.senders, b.receivers)


def _function(function: Any) -> Any:
    return getattr(function, "__name__", type(function).__name__)


def _same_source(a: Any, b: Any) -> bool:
    if isinstance(a, Rows) and isinstance(b, Rows):
        return a.own_call == b.own_call
    return isinstance(a, Ref) and isinstance(b, Ref) and a == b


def _same_leaf(a: Any, b: Any) -> bool:
    if isinstance(a, (Ref, Rows)) or isinstance(b, (Ref, Rows)):
        return _same_source(a, b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and torch.equal(a, b)
    return type(a) is type(b) and bool(a == b)


def pass_bytes(model: NodeModel, num_edges: int) -> int:
    """Of the messages of the widest layer, in a pass over a graph with so many edges."""
    return num_edges * max(call.message_width for call in model.trace.calls) * model.trace.output.element_size()


class NotConfirmedError(ModelError):
    """The model is not known to be local, and the graph is too large to be run as a whole."""


def not_confirmed(model: NodeModel, num_edges: int) -> NotConfirmedError:
    """The refusal of a model that is not known to be local, on a graph too large to be run as a whole."""
    return NotConfirmedError(
        f"Something outside a neighbourhood may change the output: forward mixes nodes, or knows them by their row number (a "
        f"table by position, torch.arange, noise), or does what is not known to work row by row. One pass over the whole graph "
        f"would tell, but its messages take {pass_bytes(model, num_edges) / 2**30:.1f} GB. Use memory='…GB' to allow that, or "
        f"give what belongs to each node as an attribute of the data."
    )


def warn_of_sizes() -> None:
    """Everything is proved, but the model's own code may do something else on a graph of another size."""
    warnings.warn(
        "forward asks how many nodes there are, and may do something else on a part of the graph; the graph is too large to be "
        "run as a whole for a comparison. Compare a value with your own prediction, or use memory='…GB' to allow that pass.",
        LocalityWarning,
        stacklevel=2,
    )


def confirmed(model: NodeModel, graph: Data, cut: Cut, index: Tensor, kept: list[Tensor]) -> str:
    """`"confirmed"` if the whole graph gives the same values, at ω = 1 and at random ω; `""` if it differs.

    At ω = 1 alone, what only wakes up when a message is silenced would stay unseen. `kept` gets the two outputs of the whole
    graph, `[N, columns]`: other targets of the same question are compared with them, too.
    """
    targets = index.to(model.device)
    with model.loan.taken(), torch.no_grad():
        if not kept:
            check_values(graph)
            try:
                kept += [model.call(graph), at_random_weights(model.weighted, graph, whole(graph))]
            except ModelError:
                return ""
        here = (model.trace.output, at_random_weights(model.weighted, cut.data, cut))
    places = cut.places(targets)
    same = all(close(rows[places], there[targets], model.scale) for rows, there in zip(here, kept, strict=True))
    return "confirmed" if same else ""


def at_random_weights(model: WeightedModel, graph: Data, cut: Cut) -> Tensor:
    """The rows of a cut under random ω and s, which are the same for a column or node of the cut as in the whole graph."""
    like, device = model.trace.output, graph.edge_index.device
    sizes = (graph.edge_index.size(1), graph.num_nodes)
    ids = [of(torch.arange(size, device=device)) for of, size in zip((cut.columns, cut.nodes), sizes, strict=True)]
    return model(WeightedGraph(graph), *(random_weight(part, model.trace.num_layers, like) for part in ids))

"""A pass through the model, read off as a program with the activations of every node: what blocks are made from.

`read_off` records a model that has not been explained before and checks that the program does what the model does; `reuse`
takes the program that `explain` recorded and proved already.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.errors import ModelError
from edgewise.graph.computation_graph import InEdges
from edgewise.model.call import ModelCall
from edgewise.model.head import ModelOutput
from edgewise.model.hooks import Layers
from edgewise.model.norms import fixed_norms, norms_of_graphs
from edgewise.model.trace import Trace, record
from edgewise.model.weighted_model import WeightedGraph, WeightedModel
from edgewise.program.compile import compile_program
from edgewise.program.execution import prepare, run
from edgewise.program.hop import Hop
from edgewise.program.ir import MessageStep, Program, Rows
from edgewise.program.layers.base import Unsupported
from edgewise.program.layers.module import ModuleLayer, module_layer
from edgewise.program.levels import Levels, whole_levels
from edgewise.program.lowering import Lowering
from edgewise.program.mirror import mirrored
from edgewise.question.equality import close, random_weight
from edgewise.trees import tree_leaves
from edgewise.walk.chain import refuse_skips
from edgewise.walk.tangents import Moving, follow


@dataclass(frozen=True, eq=False)
class Recording:
    """The program of a model on a graph (or on graphs side by side), and every value of it."""

    program: Program
    data: Data
    in_edges: InEdges
    levels: Levels
    """Every node in every call: the whole graph, not the neighbourhoods of targets."""
    known: dict[int, Tensor]
    """The value of every step of the program, by its number; `[N, d]` up to the readout."""
    features: Tensor
    """`[N, d]`: what the first call reads."""
    tangent: Tensor
    """`[N, d]`: its change along the features, J · x of what lies before it; without an encoder the features themselves."""
    moving: Moving
    """All constants of the program that depend on the features, with their changes."""
    output: Tensor
    num_columns: int
    """Columns of the graph itself; `data` has twice as many where messages run both ways (`program/mirror.py`)."""

    def table(self, message: MessageStep) -> Tensor:
        """`[N, d]`: what a call reads."""
        return message.source.tensor if isinstance(message.source, Rows) else self.known[message.source.value]

    def hop(self, call: int) -> Hop:
        """The edges of a call on the whole graph, from nodes to nodes."""
        return self.levels.hop(call, from_nodes=True)


def read_off(
    call: ModelCall, layers: Layers, data: Data, output: ModelOutput, *, graphs: Tensor | None, norm: str | None = None
) -> Recording:
    """Record the model on a graph. It must be borrowed: in eval mode, with nothing of its own in the way.

    Args:
        call: The model and how to call it.
        layers: Its message-passing layers.
        data: The graph, or several graphs side by side.
        output: What the model returns: its pass is read as far as the logits.
        graphs: `[N]`, the graph of each node, in graph tasks; None in node tasks.
        norm: `"fixed"` holds the statistics of norms over whole graphs as they are in this pass.
    """
    held = fixed_norms(call.model, lambda: call(data)) if norm == "fixed" else nullcontext()
    with held:
        return _read_off(call, layers, data, output, graphs)


def reuse(trace: Trace, lowering: Lowering, data: Data) -> Recording | None:
    """The recording from what was recorded and proved for `explain`; None if it does not do for walks.

    It does if the first layer reads floating-point x as it is and nothing else reads x.
    """
    first = next(step for step in lowering.program.steps if isinstance(step, MessageStep))
    if not trace.starts_plainly or trace.bypass or not isinstance(first.source, Rows) or not lowering.program.is_chain:
        return None
    x, moving = first.source.tensor, Moving()
    if not x.is_floating_point():
        return None
    moving.add(x, x)
    return Recording(
        lowering.program,
        data,
        lowering.in_edges,
        lowering.everything,
        lowering.known_everywhere(),
        x,
        x,
        moving,
        trace.output,
        data.edge_index.size(1),
    )


def _read_off(call: ModelCall, layers: Layers, data: Data, output: ModelOutput, graphs: Tensor | None) -> Recording:
    """Trace the model, compile the trace, run the program with all weights 1, and compare it with the model."""
    recorded, columns = output.shorten(record(call, layers, data)), data.edge_index.size(1)
    refuse_skips(recorded.bypass)
    weighted = WeightedModel(call, layers, recorded), WeightedGraph(data)
    trace, data = (recorded, data) if recorded.flow is not None else mirrored(recorded, data)
    try:
        program = compile_program(trace, data, readout=graphs is not None, fallback=module_layer)
    except Unsupported as reason:
        norms = [type(norm).__name__ for norm in norms_of_graphs(call.model)]
        if norms:
            raise ModelError(_COUPLED.format(norm=norms[0])) from reason
        raise ModelError(_cannot_follow(f"{reason}{_module_of(reason, call.model)}")) from reason
    in_edges = InEdges.of(
        data.edge_index, data.num_nodes, trace.flow
    )  # one way: a mirrored graph has every column twice
    owner = torch.zeros(data.num_nodes, dtype=torch.long, device=data.edge_index.device) if graphs is None else graphs
    targets = data.num_nodes if graphs is None else len(trace.output)
    levels = whole_levels(data, in_edges, trace.num_layers, owner, targets)
    levels.kinds = program.kinds
    prepared = prepare(program)
    ones = trace.output.new_ones(trace.num_layers, len(in_edges.edge))
    with torch.no_grad():
        known = run(program, levels, prepared, ones, None)
    _prove(weighted, program, levels, prepared, known[program.output], trace)
    moving = follow(trace, data)
    features = _first_features(program)
    tangent = _tangent(trace, moving, features)
    return Recording(program, data, in_edges, levels, known, features, tangent, moving, trace.output, columns)


def _first_features(program: Program) -> Tensor:
    """What the first call reads."""
    first = next(step for step in program.steps if isinstance(step, MessageStep))
    assert isinstance(first.source, Rows)
    return first.source.tensor


_COUPLED = (
    "The model normalises over all nodes of a graph at once ({norm}; PyG's LayerNorm does so unless mode='node'), so every "
    "node changes every other and a walk along edges does not describe it. Use norm='fixed' to hold the statistics fixed."
)


def _cannot_follow(reason: str) -> str:
    """The refusal of a model whose walks cannot be followed."""
    return (
        f"The walks of this model cannot be followed: {reason}. Walks need known message layers and node-wise steps between "
        f"them. Explain its edges instead: ew.explain(model, data, ...)."
    )


def _module_of(reason: Unsupported, model: torch.nn.Module) -> str:
    """The module whose weights the refused operation reads, such as ` (module encoder.lin, Linear)`; empty if none is."""
    given = tree_leaves((reason.operation.args, reason.operation.kwargs)) if reason.operation is not None else []
    weights = {id(leaf) for leaf in given if isinstance(leaf, torch.nn.Parameter)}
    for name, module in model.named_modules():
        if any(id(own) in weights for own in module.parameters(recurse=False)):
            return f" (module {name or 'itself'}, {type(module).__name__})"
    return ""


def _prove(
    weighted: tuple[WeightedModel, WeightedGraph],
    program: Program,
    levels: Levels,
    prepared: Any,
    output: Tensor,
    trace: Trace,
) -> None:
    """Refuse a program that does not give the model's output, as it is and under random edge weights.

    Layers that are run as modules (`ModuleLayer`) take no weights; for them only the output as it is can be compared.
    """
    model, graph = weighted
    edges, nodes = (torch.arange(n, device=output.device) for n in (graph.num_edges, graph.data.num_nodes))
    weight, own = (random_weight(ids, trace.num_layers, trace.output) for ids in (edges, nodes))
    if any(isinstance(layer, ModuleLayer) for layer in program.layers):
        if not close(output, trace.output):
            raise ModelError(_cannot_follow("its layers do not do what their names say"))
        return
    with torch.no_grad():
        probe = model(graph, weight, own)
        if program.kinds is not None and len(probe) != len(output):  # rows of one type, spread over all nodes
            probe = probe.index_select(0, program.kinds.nodes[program.rows_of(program.output)])
        found = run(program, levels, prepared, weight[:, levels.edge_id % max(graph.num_edges, 1)], own)[program.output]
    if not (close(output, trace.output) and close(found, probe)):
        raise ModelError(_cannot_follow("its layers do not do what their names say"))


def _tangent(trace: Trace, moving: Moving, features: Tensor) -> Tensor:
    """`[N, d]`: how what the first call reads changes along x.

    A model that makes its own features (an embedding of node numbers, say) has no x; its walks start from what the first call
    reads.
    """
    found = moving.tangent(features)
    if found is None and trace.changes_input:
        raise ModelError(_cannot_follow("it changes its features in place before the first layer"))
    return features if found is None else found

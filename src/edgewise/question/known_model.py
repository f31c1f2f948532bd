"""What one recording of a model tells the next one: how far it reads, and what need not be found out again."""

from dataclasses import dataclass

from torch import Tensor
from torch_geometric import nn as pyg

from edgewise.model.call import ModelCall
from edgewise.model.head import ModelOutput
from edgewise.model.trace import Trace
from edgewise.program.transfer import Transfer
from edgewise.question.equality import NORMALISES, PICKS_ROWS

# Layers that read only the receiver's own in-edges; any other may read the degree of a sender, one hop further (GCN does).
_READ_RECEIVERS_ONLY = (
    *(pyg.SAGEConv, pyg.GraphConv, pyg.GINConv, pyg.GINEConv),
    *(pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv, pyg.PNAConv),
)

_READ_DEGREES = (pyg.GCNConv, pyg.SGConv)
"""Layers that read the degrees of senders, and nothing else beyond the receiver's own in-edges."""


@dataclass(frozen=True)
class Carried:
    """A recorded pass whose program can be carried over to other cuts."""

    transfer: Transfer
    trace: Trace
    call: ModelCall


@dataclass(frozen=True)
class Known:
    """What an earlier recording of the same model found out, to be taken over."""

    scale: Tensor | None
    """`[columns]`: how much weights change each column of the output; None if by no more than rounding."""
    is_lowered: bool
    local: bool
    output: ModelOutput
    carried: Carried | None = None
    """If the model need not be recorded again, only run to compare."""


def rim_of(trace: Trace) -> str:
    """What layers read beyond L hops: nothing (`""`), the degrees of senders, or perhaps more of the nodes there."""
    modules = [call.module for call in trace.calls]
    if all(isinstance(module, _READ_RECEIVERS_ONLY) for module in modules):
        return ""
    known = (*_READ_RECEIVERS_ONLY, *_READ_DEGREES)
    return "degrees" if all(type(module) in known for module in modules) else "nodes"


def reads_further(trace: Trace) -> str:
    """Why neighbourhoods of L hops may lack something although they give the same values, or `""`."""
    if trace.picks_rows == "messages":
        return PICKS_ROWS
    return NORMALISES if trace.weighs_by_nodes and rim_of(trace) else ""

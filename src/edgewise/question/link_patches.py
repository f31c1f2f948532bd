"""The encoder of a model of links on a patched graph (`graph/pair_patches.py`): pairs without their own links, lowered.

The program that was read off the patched graph is compared with the model there, at every end of every pair. That the patched
graph is right follows from a proof, not from a sample: every layer is known to read nothing but its in-edges and the degrees of
senders, everything before the first layer works row by row, and the program is the one of the graph itself.
"""

from torch import Tensor

from edgewise.graph.pair_copies import LinkColumns
from edgewise.graph.pair_patches import PatchedGraph, patch_size, patched_graph
from edgewise.question.known_model import rim_of
from edgewise.question.locality import is_proved
from edgewise.question.node_model import NodeModel
from edgewise.question.node_question import NodeQuestion

_LARGEST = 2**26
"""Features of a patched graph that may be kept: with more of them, pairs are run in blocks of copies."""


def patched_encoder(encoder: NodeQuestion, pairs: Tensor, links: LinkColumns) -> tuple[PatchedGraph, NodeModel] | None:
    """The patched graph of some pairs `[T, 2]` of the encoder's cut, and the encoder on it; None if that is not proved."""
    model = encoder.node_model
    if model.lowering is None or rim_of(model.trace) == "nodes" or model.trace.flow is None:
        return None
    graph, hops = model.graph, model.num_layers - 1
    nodes = graph.num_nodes + patch_size(model.in_edges, pairs, links, hops)
    if nodes * graph.x[:1].numel() > _LARGEST:
        return None
    patched = patched_graph(graph, model.in_edges, pairs, links, hops)
    asked = (encoder.asked.output, encoder.asked.mode)
    found = NodeModel(model.subject, patched.data, asked, None, patched.pairs.unique(), is_part=True)
    if found.lowering is None or not is_proved(found, model.subject.first, model.subject.example):
        return None
    return patched, found

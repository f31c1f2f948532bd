"""The first call, which reads the features."""

from functools import partial
from typing import Any

from torch import Tensor
from torch.autograd import forward_ad

from edgewise.lowering.layers.affine import AffineLayer
from edgewise.lowering.layers.attention import AttentionLayer
from edgewise.lowering.program import Rows
from edgewise.walk.blocks import FirstCall
from edgewise.walk.build import by_copies
from edgewise.walk.calls import Calls
from edgewise.walk.running import Runner


def first_call(calls: Calls) -> FirstCall:
    """Never the blocks, which may be wide, only block · features."""
    recording, message = calls.recording, calls.chain.messages[0]
    tangent, geometry = recording.tangent, calls.geometry(0)
    dense_attention = isinstance(message.layer, AttentionLayer) and calls.attention != "fixed"
    if calls.rule.is_gradient and (dense_attention or not _is_factored(message.layer)):
        along = by_copies(message.layer, geometry, recording.table(message), recording.hop(0), tangent)
        return FirstCall(geometry, None, dense=along, skip=_skip(calls))
    plain = calls.plain_blocks(0)
    start = tangent.double()
    sent = start if plain.matrix is None else start @ plain.matrix.t()
    root = None if plain.root is None else start @ plain.root.t()
    return FirstCall(geometry, plain.scale, sent, root, plain.post, skip=_skip(calls))


def _skip(calls: Calls) -> Tensor | None:
    """What residuals carry from the features into the state after the first call."""
    link = calls.chain.receiving[0]
    sources = [source for step in link.steps for source in step.sources]
    if calls.chain.num_calls == 1 or all(calls.along_features(source) is None for source in sources):
        return None
    message = calls.chain.messages[0]
    with forward_ad.dual_level():
        runner = Runner(calls.rule, calls.rule.gamma(0), partial(_dual, calls))
        values = {message.output: calls.summed(0, calls.recording.known[message.output])[0]}
        found = forward_ad.unpack_dual(runner.run(link, values)).tangent
    return None if found is None else found.detach().double()


def _dual(calls: Calls, source: Rows) -> Tensor:
    along = calls.along_features(source)
    return source.tensor if along is None else forward_ad.make_dual(source.tensor.detach(), along)


def _is_factored(layer: Any) -> bool:
    return isinstance(layer, (AffineLayer, AttentionLayer))

"""Many weightings of the same targets in one forward pass: the targets are laid side by side several times."""

import torch
from torch import Tensor

from edgewise.score import Score
from edgewise.shapes import LayerWeight

_PASS = 2**27  # bytes of a pass: large enough to keep the processor busy, small enough for any memory


class Repeated:
    """A score whose targets are repeated `times` times, each time (`turn`) with weights of its own."""

    def __init__(self, score: Score, at_most: int) -> None:
        self.base = score
        self.times = max(1, min(at_most, _PASS // max(score.pass_bytes, 1)))
        self.score = score if self.times == 1 else score.repeated(self.times)
        owner, targets = self.score.owner, score.num_targets
        self.turn, position = owner // targets, owner % targets
        width = int(score.num_edges.max()) if score.num_edges.numel() else 0
        known, order = (score.owner * width + score.edge_id).sort()
        self.place = order[torch.searchsorted(known, position * width + self.score.edge_id)]

    def weights(self, weight: Tensor) -> LayerWeight:
        """ω of the repeated score, from `[turns, L, copies]` of the single one; turns that are left over have ω = 1."""
        spare = self.times - len(weight)
        if spare:
            weight = torch.cat([weight, torch.ones_like(weight[:1]).expand(spare, -1, -1)])
        return weight[self.turn, :, self.place].t()

    def rows(self, found: Tensor, turns: int) -> Tensor:
        """`[turns, targets]` of the numbers of all rows."""
        return found.view(self.times, -1)[:turns]

    def single(self, found: LayerWeight, turns: int) -> Tensor:
        """`[turns, L, copies]` of the single score, from `[L, copies]` of the repeated one (gradients, for one)."""
        back = found.new_empty(self.times, len(found), self.base.edge_id.numel())
        back[self.turn, :, self.place] = found.t()
        return back[:turns]

"""How far methods are from the floor by arithmetic: `python -m benchmarks.floor`.

The floor is what a method must add and multiply, divided by what this core does in a product of two large matrices. Counted are
products of rows and matrices, and messages along edges; reading, writing and everything else is what stands above the floor.
"""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import edgewise as ew
from benchmarks import jobs

EPOCHS = 100
SIDE = 1536  # of the matrices whose product is timed
Row = tuple[str, str, float, float, float]


def rate(rounds: int = 5) -> float:
    """Operations a second of this core in a matrix product of float32: 2 n³ over the best time."""
    left, best = torch.rand(SIDE, SIDE), float("inf")
    for _ in range(rounds):
        start = time.process_time()
        left @ left
        best = min(best, time.process_time() - start)
    return 2 * SIDE**3 / best


class Counts:
    """Operations of a lowered question, from the sizes of its levels and layers."""

    def __init__(self, question: ew.Question) -> None:
        posed = question._posed
        assert posed.lowering is not None
        self.lowering, self.places = posed.lowering, posed.places(torch.arange(len(posed.index)))
        self.calls = self.lowering.program.num_calls
        self.levels = self.lowering.engine(self.places).levels
        known = self.lowering.known
        self.out = [known[step.output].size(1) for step in self.lowering.program.messages]

    def _matrix(self, call: int) -> int:
        """Operations that carry a row through the matrices of a call, one way."""
        layer: Any = self.lowering.program.messages[call].layer
        return sum(2 * part.numel() for part in (layer.matrix, layer.root) if isinstance(part, Tensor))

    def gradient(self) -> float:
        """Each message is weighed once, and each gradient is carried once through the matrices of every call but the first."""
        total = 0
        for call, width in enumerate(self.out):
            edges, rows = self.levels.edges_of(call), self.levels.pairs_after(call + 1)
            total += 2 * edges * width + ((2 * edges * width + rows * self._matrix(call)) if call else 0)
        return float(total)

    def gnn_explainer(self) -> float:
        """A pass forwards, and one backwards that does each product twice, in every epoch; features are projected once."""
        total = 0
        for call, width in enumerate(self.out):
            edges, rows = self.levels.edges_of(call), self.levels.pairs_after(call + 1)
            total += 2 * edges * width + (rows * self._matrix(call) if call else 0)
        return 3.0 * EPOCHS * total

    def occlusion(self, *, by_layer: bool) -> float:
        """Each missing message is subtracted at its receiver; what changes there is carried on while it can reach a target."""
        graph = self.lowering.in_edges
        size, degree = graph.num_nodes, graph.start.diff().double()
        receiver = torch.repeat_interleave(torch.arange(size), graph.start.diff())
        step = torch.zeros(size, size, dtype=torch.bool)
        step[receiver, graph.sender] = True
        step.fill_diagonal_(True)
        leaving = torch.bincount(graph.sender, minlength=size).double()
        near = torch.zeros(
            self.calls, size, dtype=torch.bool
        )  # [calls, N]: whether a change after a call still matters
        near[-1, self.places] = True
        for call in range(self.calls - 2, -1, -1):
            near[call] = (step.t().float() @ near[call + 1].float()) > 0
        total = 0.0
        for first in range(self.calls) if by_layer else (0,):
            changed = torch.eye(size, dtype=torch.bool) & near[first].view(-1, 1)  # [node, where it began]
            for call in range(first, self.calls):
                if call > first:
                    changed = ((step.float() @ changed.float()) > 0) & near[call].view(-1, 1)
                rows = (changed.double() * degree).sum(dim=1)  # [N]: by how many messages each node is changed
                total += 2 * float(degree[near[call]].sum()) * self.out[call]
                if call < self.calls - 1:
                    total += float(rows.sum()) * self._matrix(call + 1)
                    total += 2 * float((rows * leaving).sum()) * self.out[call + 1]
        return total


def rows(rounds: int = 3) -> Iterator[Row]:
    """(job, method, operations, seconds, floor in seconds)."""
    speed = rate()
    asked = {"1000 Infection nodes, SAGE 4×20": jobs.infection(), "497 Cora nodes, GCN 3×32": jobs.cora("gcn")}
    for title, subject in asked.items():
        question = ew.Question(subject.model, subject.data, subject.nodes)
        counts = Counts(question)
        methods: dict[str, tuple[float, dict[str, Any]]] = {
            "layer gradients": (counts.gradient(), {"method": "gradient", "level": "layer"}),
            "occlusion": (counts.occlusion(by_layer=False), {"method": "occlusion"}),
            "layerwise occlusion": (counts.occlusion(by_layer=True), {"method": "occlusion", "level": "layer"}),
            f"GNNExplainer({EPOCHS})": (counts.gnn_explainer(), {"method": "gnn_explainer", "epochs": EPOCHS}),
        }
        for name, (operations, options) in methods.items():
            best = float("inf")
            for _ in range(rounds):
                start = time.process_time()
                question.explain(**options)
                best = min(best, time.process_time() - start)
            yield title, name, operations, best, operations / speed


def markdown(found: list[Row]) -> str:
    """The table."""
    head = ("job, held", "method", "operations", "floor, ms", "ours, ms", "above the floor")
    lines = [head, ("---",) * len(head)]
    for title, method, operations, seconds, floor in found:
        ours = f"{seconds * 1e3:.0f}" if seconds > 0.1 else f"{seconds * 1e3:.3g}"
        numbers = (
            f"{operations / 1e9:.3g}·10⁹",
            f"{floor * 1e3:.3g}",
            ours,
            f"{seconds / floor:.0f}×",
        )
        lines.append((title, method, *numbers))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    print(f"A matrix product of {SIDE}×{SIDE} float32: {rate() / 1e9:.0f}·10⁹ operations a second on one core.")
    print(markdown(list(rows())))


if __name__ == "__main__":
    from benchmarks.threads import pin

    pin()
    main()

"""Searches of walks on the leaderboard's Infection networks: what exactness buys, beside what another network changes.

python -m benchmarks.findings.board_walks
"""

import math
from pathlib import Path

import torch

from benchmarks.findings.study import markdown, spanned
from edgewise.board.board import Board

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "leaderboard" / "results.parquet"
SEARCHES = {
    "walks:exact": "exact",
    "walks:dag": "Algorithm 1",
    "walks:amp_ave": "AMP-ave",
    "walks:amp_ave_additive": "AMP-ave, additive",
    "walks:emp_neu": "EMP-neu",
    "occlusion": "occlusion, its strongest edges",
}


def found_paths(board: Board, method: str) -> dict[int, torch.Tensor]:
    """From a network to whether the path was found, target by target; NaN where there is more than one."""
    return {
        line["seed"]: torch.tensor([math.nan if v is None else v for v in line["values"]["support"]["path"]])
        for line in board.lines
        if line["data"] == "infection" and line["method"] == method
    }


def deviations(values: dict[int, torch.Tensor]) -> tuple[float, float]:
    """The deviation of networks' means, and what of it is left when the drawing of targets is taken out (in quadrature)."""
    known = [one[~one.isnan()].double() for one in values.values()]
    means = torch.stack([one.mean() for one in known])
    noise = sum(float(one.var()) / len(one) for one in known if len(one) > 1) / len(known)
    return float(means.std()), math.sqrt(max(float(means.var()) - noise, 0.0))


def tables() -> str:
    board = Board.read(RESULTS)
    exact = found_paths(board, "walks:exact")
    accuracy = {line["seed"]: line["accuracy"] for line in board.lines if line["data"] == "infection"}
    lines = []
    for method, title in SEARCHES.items():
        values = found_paths(board, method)
        shares = [float(one.nanmean()) for one in values.values()]
        gains = [float((exact[seed] - one).nanmean()) for seed, one in values.items()]
        whole, own = deviations(values)
        lines.append([
            title, spanned(shares, 1, percent=True), "" if method == "walks:exact" else spanned([100 * g for g in gains], 1),
            f"{100 * whole:.1f}", f"{100 * own:.1f}", f"{1000 * board.seconds['infection', method]:.2f}",
        ])  # fmt: skip
    heads = (
        "search", "true path", "exact minus it, points, on the same networks", "deviation over networks, points",
        "without the drawing of targets", "ms a target",
    )  # fmt: skip
    targets = sum(int((~one.isnan()).sum()) for one in exact.values())
    span = f"{min(accuracy.values()):.1%} to {max(accuracy.values()):.1%}"
    return f"{len(exact)} networks, accuracy {span}, {targets} targets with one path.\n\n{markdown(heads, lines)}"


if __name__ == "__main__":
    print(tables())

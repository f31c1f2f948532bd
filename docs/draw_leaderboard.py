"""Write the tables of docs/leaderboard.md again from docs/leaderboard/results.parquet: `python docs/draw_leaderboard.py`."""

from pathlib import Path

from edgewise.board.board import Board
from edgewise.board.summary import Standing

HERE = Path(__file__).parent
PAGE, RESULTS = HERE / "leaderboard.md", HERE / "leaderboard" / "results.parquet"
BEGIN, END = "<!-- results: begin (python docs/draw_leaderboard.py) -->", "<!-- results: end -->"
TABLES = (("auroc", "support"), ("auroc", "magnitude"), ("faithfulness", "support"))


def table(board: Board, metric: str, order: str) -> str:
    """Every entrant on every data set: the mean, and the set of ranks; those that may be first in bold."""
    cells = {(s.data, s.method): s for s in board.standings if (s.metric, s.order) == (metric, order)}
    methods = list(dict.fromkeys(method for _, method in cells))
    lines = [f"| | {' | '.join(board.data)} |", "|---" * (1 + len(board.data)) + "|"]
    for method in methods:
        found = [cells.get((data, method)) for data in board.data]
        texts = ["–" if s is None else f"{s.mean:.2f}{few(board, s)} ({s.rank})" for s in found]
        first = [s is not None and s.rank is not None and s.rank.best == 1 for s in found]
        shown = [f"**{text}**" if bold else text for text, bold in zip(texts, first, strict=True)]
        lines.append(f"| {method} | {' | '.join(shown)} |")
    return "\n".join(lines)


def few(board: Board, standing: Standing) -> str:
    """A star where less than nine of ten targets have a number."""
    most = max(s.targets for s in board.of(standing.data, standing.metric, standing.order))
    return "\\*" if standing.targets < 0.9 * most else ""


def walks(board: Board) -> str:
    """Path recovery on Infection, with the interval over networks and the time of a target."""
    lines = ["| | path recovery | 95% over networks | rank | ms a target |", "|---|---|---|---|---|"]
    for s in board.of("infection", "path"):
        milliseconds = 1000 * board.seconds[s.data, s.method]
        lines.append(f"| {s.method} | {s.mean:.3f} | {s.low:.3f} … {s.high:.3f} | {s.rank} | {milliseconds:.2f} |")
    return "\n".join(lines)


def written(page: str) -> str:
    """The page with its tables made anew."""
    board = Board.read(RESULTS)
    names = {"auroc": "AUROC", "faithfulness": "Faithfulness"}
    parts = [f"{names[m]}, edges ranked by {order}:\n\n{table(board, m, order)}" for m, order in TABLES]
    parts.append(f"Path recovery on Infection:\n\n{walks(board)}")
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n\n" + "\n\n".join(parts) + "\n\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{PAGE.name}: tables written.")

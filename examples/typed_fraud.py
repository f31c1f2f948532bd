"""A typed fraud graph: accounts, cards and merchants, as tables, with a reason for fraud that is planted.

An account is a fraud if one of its cards was charged by a merchant about whom people complain. Run this file once: it writes
the tables into the folder fraud, trains for a few seconds and writes fraud_weights.pt. Then one command makes the page:

    edgewise explain --model typed_fraud:Detector --weights fraud_weights.pt --data fraud --index account:test --page fraud.html
"""

import csv
from pathlib import Path

import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

ACCOUNTS, TRAINED, CARDS, MERCHANTS = 120, 114, 180, 40
CLASSES = ("fraud", "honest")  # in the order of the alphabet: names of classes in a table are numbered so
FEATURES = {"account": ["age", "balance"], "card": ["limit"], "merchant": ["complaints", "turnover"]}
USED_BY, USES = ("card", "used_by", "account"), ("account", "uses", "card")
CHARGED, CHARGED_AT = ("merchant", "charged", "card"), ("card", "charged_at", "merchant")
KINDS = (USED_BY, USES, CHARGED, CHARGED_AT)


class Detector(torch.nn.Module):
    """Two layers over four kinds of edges; accounts, cards and merchants have features of their own."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        width = {name: len(columns) for name, columns in FEATURES.items()}
        first = {kind: SAGEConv((width[kind[0]], width[kind[2]]), hidden, aggr="max") for kind in KINDS}
        second = {kind: SAGEConv((hidden, hidden), 2, aggr="max") for kind in KINDS}
        self.first, self.second = HeteroConv(first), HeteroConv(second)

    def forward(self, x_dict: dict, edge_index_dict: dict) -> dict:
        """A row of logits for each node of each type; only those of accounts are trained."""
        hidden = {name: x.relu() for name, x in self.first(x_dict, edge_index_dict).items()}
        return self.second(hidden, edge_index_dict)


def made_up() -> tuple[HeteroData, torch.Tensor]:
    """The graph, and which columns of `CHARGED` are charges by bad merchants."""
    data = HeteroData()
    for name, count in (("account", ACCOUNTS), ("card", CARDS), ("merchant", MERCHANTS)):
        data[name].x = torch.rand(count, len(FEATURES[name]))
    bad = torch.rand(MERCHANTS) < 0.15
    data["merchant"].x[:, 0] = torch.where(bad, 0.8 + 0.2 * torch.rand(MERCHANTS), 0.5 * torch.rand(MERCHANTS))
    owner = torch.cat([torch.arange(ACCOUNTS), torch.randint(ACCOUNTS, (CARDS - ACCOUNTS,))])
    held, charges = torch.stack([torch.arange(CARDS), owner]), torch.randint(MERCHANTS, (3 * CARDS // 2,))
    charged = torch.stack([charges, torch.randint(CARDS, charges.shape)])
    for kind, ends in ((USED_BY, held), (USES, held.flip(0)), (CHARGED, charged), (CHARGED_AT, charged.flip(0))):
        data[kind].edge_index = ends
    suspicious = bad[charged[0]]
    bad_card = torch.zeros(CARDS, dtype=torch.bool).index_fill(0, charged[1, suspicious], True)
    data["account"].y = torch.ones(ACCOUNTS, dtype=torch.long).index_fill(0, owner[bad_card], 0)  # as CLASSES
    return data, suspicious


def write_tables(data: HeteroData, folder: Path) -> None:
    """A table for each node type and each edge type, named by type; the last accounts are those to test on."""
    folder.mkdir(exist_ok=True)
    for name, columns in FEATURES.items():
        more = ["class", "split"] if name == "account" else []
        rows = [[f"{name[0].upper()}{number}", *row] for number, row in enumerate(data[name].x.tolist())]
        if more:
            named = [CLASSES[y] for y in data["account"].y.tolist()]
            split = ["test" if number >= TRAINED else "train" for number in range(ACCOUNTS)]
            rows = [[*row, *last] for row, last in zip(rows, zip(named, split, strict=True), strict=True)]
        write(folder / f"nodes_{name}.csv", ["id", *columns, *more], rows)
    for source, relation, target in KINDS:
        ends = data[source, relation, target].edge_index.t().tolist()
        rows = [[f"{source[0].upper()}{one}", f"{target[0].upper()}{other}"] for one, other in ends]
        write(folder / f"edges_{source}__{relation}__{target}.csv", ["source", "target"], rows)


def write(path: Path, heads: list[str], rows: list[list]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([heads, *rows])


def main() -> None:
    torch.manual_seed(0)
    data, _ = made_up()
    write_tables(data, Path("fraud"))
    model, y = Detector(), data["account"].y
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        logits = model(data.x_dict, data.edge_index_dict)["account"]
        torch.nn.functional.cross_entropy(logits[:TRAINED], y[:TRAINED]).backward()
        optimizer.step()
    right = (logits.argmax(dim=1) == y)[TRAINED:].float().mean()
    torch.save(model.state_dict(), "fraud_weights.pt")
    print(f"accuracy on accounts to test on: {float(right):.0%}; written: fraud/, fraud_weights.pt")


if __name__ == "__main__":
    main()

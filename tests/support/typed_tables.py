"""A typed graph as a folder of tables: accounts, cards and merchants; and a model for it."""

import csv

import torch
from torch_geometric.data import HeteroData

PAYS, PAID, USES = ("account", "pays", "merchant"), ("merchant", "paid_by", "account"), ("card", "used_by", "account")
COUNTS = {"account": 9, "card": 5, "merchant": 4}
NAMES = ["Ann", "Bob", "Cleo", "Dan", "Eve", "Fay", "Gus", "Hal", "Ida"]
MODEL = """
import torch
from torch_geometric.nn import SAGEConv

PAYS, PAID, USES = ("account", "pays", "merchant"), ("merchant", "paid_by", "account"), ("card", "used_by", "account")


class Net(torch.nn.Module):
    def __init__(self, hidden: int = 6):
        super().__init__()
        self.pays, self.paid = SAGEConv((2, 3), hidden), SAGEConv((3, 2), hidden)
        self.uses, self.last, self.again = SAGEConv((1, 2), hidden), SAGEConv(hidden, 2), SAGEConv(hidden, 2)

    def forward(self, x_dict, edge_index_dict):
        account, card, merchant = (x_dict[name] for name in ("account", "card", "merchant"))
        paid = self.paid((merchant, account), edge_index_dict[PAID])
        used = self.uses((card, account), edge_index_dict[USES])
        account, merchant = (paid + used).relu(), self.pays((account, merchant), edge_index_dict[PAYS]).relu()
        return {
            "account": self.last((merchant, account), edge_index_dict[PAID]),
            "merchant": self.again((account, merchant), edge_index_dict[PAYS]),
        }
"""


def tables(seed=0):
    """Name of a table -> its columns."""
    draw = torch.Generator().manual_seed(seed)
    number = lambda count: [round(value, 3) for value in torch.randn(count, generator=draw).tolist()]  # noqa: E731
    some = lambda texts, count: [  # noqa: E731
        texts[i] for i in torch.randint(len(texts), (count,), generator=draw).tolist()
    ]
    account = [f"a{i}" for i in range(9)]
    card = [f"c{i}" for i in range(5)]
    return {
        "nodes_account": {
            "id": account, "name": NAMES, "age": number(9), "city": ["X"] * 9, "debt": number(9),
            "y": ["fraud", "fine", "fine"] * 3, "split": ["train"] * 6 + ["test"] * 3,
        },
        "nodes_card": {"id": card, "limit": number(5)},
        "nodes_merchant": {"risk": number(4), "size": number(4), "rating": number(4)},
        "edges_account__pays__merchant": {
            "source": some(account, 20), "target": some([0, 1, 2, 3], 20), "amount": number(20), "weight": number(20),
        },
        "edges_merchant__paid_by__account": {"source": some([0, 1, 2, 3], 20), "target": some(account, 20)},
        "edges_card__used_by__account": {"source": some(card, 8), "target": some(account, 8)},
    }  # fmt: skip


def write(folder, name, columns):
    folder.mkdir(exist_ok=True)
    with (folder / f"{name}.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))


def written(folder, seed=0):
    """A folder with net.py, weights.pt and shop/; the tables that are in it."""
    found = tables(seed)
    for name, columns in found.items():
        write(folder / "shop", name, columns)
    (folder / "net.py").write_text(MODEL)
    torch.save(network().state_dict(), folder / "weights.pt")
    return found


def network():
    """The model of `MODEL` with the weights of `written`."""
    names: dict = {}
    exec(MODEL, names)
    torch.manual_seed(1)
    return names["Net"]().eval()


def by_hand(found):
    """The typed graph that the tables mean, put together without the command line."""
    data, place = HeteroData(), {"account": {f"a{i}": i for i in range(9)}, "card": {f"c{i}": i for i in range(5)}}
    place["merchant"] = {i: i for i in range(4)}
    for name, features in (("account", ["age", "debt"]), ("card", ["limit"]), ("merchant", ["risk", "size", "rating"])):
        data[name].x = torch.tensor([found[f"nodes_{name}"][feature] for feature in features]).t().contiguous()
    for kind in (PAYS, USES, PAID):
        columns = found["edges_" + "__".join(kind)]
        ends = (("source", kind[0]), ("target", kind[2]))
        data[kind].edge_index = torch.tensor([[place[end][text] for text in columns[column]] for column, end in ends])
    return data

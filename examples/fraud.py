"""Fraud-like data: accounts, payments between them in one direction, an amount and an hour on each payment.

Accounts that receive large payments at night are labelled as fraud. A model that reads the edge features learns it; the
explanation names the payments that made it decide.
"""

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv

import edgewise as ew


class Detector(torch.nn.Module):
    """Two layers that read what is written on the payments."""

    def __init__(self) -> None:
        super().__init__()
        maps = [torch.nn.Sequential(torch.nn.Linear(width, 16), torch.nn.ReLU()) for width in (2, 16)]
        self.first, self.second = (GINEConv(inner, edge_dim=2) for inner in maps)
        self.head = torch.nn.Linear(16, 1)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
        """One logit for each account: above 0 is fraud."""
        return self.head(self.second(self.first(x, edge_index, edge_attr), edge_index, edge_attr))


torch.manual_seed(0)
accounts, payments = 200, 800
edge_index = torch.randint(accounts, (2, payments))
amount, night = torch.rand(payments), (torch.rand(payments) < 0.3).float()
suspicious = (amount > 0.7) & (night > 0)
received = torch.zeros(accounts).index_add_(0, edge_index[1], suspicious.float())
data = Data(
    x=torch.randn(accounts, 2),
    edge_index=edge_index,
    edge_attr=torch.stack([amount, night], dim=1),
    y=(received > 0).long(),
)

model = Detector()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(300):
    optimizer.zero_grad()
    logits = model(data.x, data.edge_index, data.edge_attr).view(-1)
    torch.nn.functional.binary_cross_entropy_with_logits(logits, data.y.float()).backward()
    optimizer.step()
print(f"accuracy {float(((logits > 0).long() == data.y).float().mean()):.1%}")

caught = [node for node in range(accounts) if data.y[node] == 1 and logits[node] > 0]
found = ew.explain(model, data, caught, method="occlusion", mode="binary", target=1)
for why in found[:5]:
    score, payer, account, column = why.top(1)[0]
    told = f"{float(amount[column]):.2f}, {'at night' if night[column] else 'by day'}"
    print(f"account {why.index}: {payer} paid {account} {told} ({score:+.2f})")
right = [bool(suspicious[why.top(1)[0][3]]) for why in found]
print(f"the strongest payment is a suspicious one for {sum(right)} of {len(right)} caught accounts")

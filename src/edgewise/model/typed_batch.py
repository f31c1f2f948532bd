"""A model of whole typed graphs, called on batches of them: `model(x_dict, edge_index_dict, batch_dict, …)`.

What runs is a batch of unions (`graph/type_table.py`), whose nodes carry the number of their graph and whose columns their own;
the model gets the batch that PyG makes of these graphs, with everything that is in them, less the columns that were removed.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData

from edgewise.errors import ModelError
from edgewise.graph.type_table import EdgeType, TypeTable
from edgewise.model.call import Forward, takes_data
from edgewise.model.call_arguments import argument_names
from edgewise.model.typed_call import TypedForward, TypedPart, extras_of, members, tables_of, versions

_BATCH = ("batch_dict", "batch")


class TypedBatchForward(TypedForward):
    """How a model of whole typed graphs is called on a batch of their unions."""

    def __init__(self, graphs: list[HeteroData], table: TypeTable, forward: Forward | None) -> None:
        super().__init__(graphs[0], table, forward)
        self.graphs = graphs

    def data_of(self, number: int) -> HeteroData:
        """The typed graph of that number."""
        return self.graphs[number]

    def __call__(self, model: nn.Module, graph: Data) -> Tensor:
        """`[graphs, columns]`."""
        given = self.given(self.part(graph))
        if self.forward is not None:
            found = self.forward(model, given)
        elif takes_data(model):
            found = model(given)
        else:
            found = model(*tables_of(model, given), **self._more(model, given))
        return self._one_row_each(found)

    def _more(self, model: nn.Module, given: HeteroData) -> dict[str, Any]:
        """Attributes of edges that `forward` names, and `batch_dict`: the number of the graph of each node, by type."""
        named = next((name for name in _BATCH if name in argument_names(model)), None)
        return {**extras_of(model, given), **({} if named is None else {named: given.collect("batch")})}

    def _one_row_each(self, found: Any) -> Tensor:
        if isinstance(found, (tuple, list)) and found and isinstance(found[0], (Tensor, dict)):
            found = found[0]
        if isinstance(found, dict):
            raise ModelError(
                f"The model gives a dictionary ({', '.join(map(repr, found)) or 'empty'}); a graph task needs one row for each "
                f"graph. Pool the nodes with batch_dict, or use forward=lambda model, data: … for one tensor."
            )
        rows: Tensor = found
        return rows

    def spread(self, rows: Tensor, graph: Data) -> Tensor:
        """The rows are those of graphs already."""
        return rows

    def describe(self, model: nn.Module) -> str:
        """The call in words."""
        text = super().describe(model)
        named = next((name for name in _BATCH if name in argument_names(model)), None)
        return text if named is None or self.forward is not None or takes_data(model) else f"{text[:-1]}, {named})"

    def _made(self, graph: Data) -> TypedPart:
        first = _first_rows(graph.batch)
        numbers = graph.x[first, 1].tolist()
        batch = Batch.from_data_list([self.graphs[number] for number in numbers])
        for store in batch.stores:
            for key, value in store.items():
                if isinstance(value, Tensor):
                    value = value.detach().clone() if len(numbers) == 1 else value.detach()  # PyG's own copy of several
                    store[key] = value.double() if self._double and value.is_floating_point() else value
        nodes = {name: members(graph.x[:, 0], range(n, n + 1)) for n, name in enumerate(self.table.node_types)}
        columns = self._columns(graph, batch, numbers)
        return TypedPart(graph.edge_index, batch, nodes, columns, versions(batch))

    def _columns(self, graph: Data, batch: HeteroData, numbers: list[int]) -> dict[EdgeType, Tensor]:
        """For each edge type its columns in the batch of unions; those that are not there are taken out of the typed batch."""
        kinds, device = self.table.edge_types, graph.edge_index.device
        sizes = [[self.graphs[number][kind].edge_index.size(1) for kind in kinds] for number in numbers]
        count = torch.tensor(sizes, dtype=torch.long, device=device).view(len(numbers), len(kinds))
        start, before = count.cumsum(1) - count, count.cumsum(0) - count  # [graphs, types]: in the union, in the batch
        owner = graph.batch[graph.edge_index[0]]
        kind = (graph.edge_number.view(-1, 1) >= start[owner]).sum(dim=1) - 1
        place = graph.edge_number - start[owner, kind] + before[owner, kind]
        columns = {name: (kind == number).nonzero().view(-1) for number, name in enumerate(kinds)}
        for number, name in enumerate(kinds):
            if len(columns[name]) < int(count[:, number].sum()):  # edges were removed
                _keep(batch, name, place[columns[name]])
        return columns


def _first_rows(batch: Tensor) -> Tensor:
    """Where each graph of a batch begins."""
    begins = torch.ones_like(batch, dtype=torch.bool)
    begins[1:] = batch[1:] != batch[:-1]
    return begins.nonzero().view(-1)


def _keep(batch: HeteroData, kind: EdgeType, chosen: Tensor) -> None:
    """Only some of the columns of an edge type."""
    store = batch[kind]
    own = [key for key, value in store.items() if isinstance(value, Tensor) and store.is_edge_attr(key)]
    kept = {key: store[key].index_select(batch.__cat_dim__(key, store[key], store), chosen) for key in own}
    for key, value in kept.items():
        store[key] = value


def typed_union(data: HeteroData, table: TypeTable, number: int) -> Data:
    """The union of a whole typed graph: `x` says of which type, and of which graph, each node is."""
    ends = []
    for kind in table.edge_types:
        source, receiver = data[kind].edge_index
        ends.append(torch.stack([source + table.node_range(kind[0]).start, receiver + table.node_range(kind[2]).start]))
    device = next((store.edge_index.device for store in data.edge_stores), torch.device("cpu"))
    edge_index = torch.cat([torch.empty(2, 0, dtype=torch.long, device=device), *ends], dim=1)
    counts = torch.tensor([count for _, count in table.nodes])
    kind_of = torch.repeat_interleave(torch.arange(len(counts)), counts).to(device)
    return Data(
        x=torch.stack([kind_of, torch.full_like(kind_of, number)], dim=1),
        edge_index=edge_index,
        edge_number=torch.arange(edge_index.size(1), device=device),
        num_nodes=len(kind_of),
    )

"""A model of whole typed graphs, called on batches of them: `model(x_dict, edge_index_dict, batch_dict, …)`.

What runs is a batch of unions (`graph/type_table.py`), each of which carries the number of its graph; the model gets the batch
that PyG makes of these graphs, with everything that is in them.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData

from edgewise.errors import ModelError
from edgewise.graph.type_table import TypeTable
from edgewise.model.call import Forward, argument_names, takes_data
from edgewise.model.typed_call import TypedForward, TypedPart, extras_of, members, versions

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
            found = model(given.collect("x"), given.collect("edge_index"), **self._more(model, given))
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
        chosen = [self.graphs[number] for number in graph.graph_number.tolist()]
        batch = Batch.from_data_list(chosen)
        node, column = graph.x.view(-1), graph.edge_number
        nodes = {name: members(node, range(n, n + 1)) for n, name in enumerate(self.table.node_types)}
        columns = {kind: members(column, range(n, n + 1)) for n, kind in enumerate(self.table.edge_types)}
        for store in batch.stores:
            for key, value in store.items():
                if isinstance(value, Tensor):
                    value = value.detach().clone() if len(chosen) == 1 else value.detach()  # PyG's own copy of several
                    store[key] = value.double() if self._double and value.is_floating_point() else value
        return TypedPart(graph.edge_index, batch, nodes, columns, versions(batch))


def typed_union(data: HeteroData, table: TypeTable, number: int) -> Data:
    """The union of a whole typed graph: `x` and `edge_number` say of which type each node and column is."""
    ends, kinds = [], []
    for place, kind in enumerate(table.edge_types):
        source, receiver = data[kind].edge_index
        ends.append(torch.stack([source + table.node_range(kind[0]).start, receiver + table.node_range(kind[2]).start]))
        kinds.append(torch.full_like(source, place))
    device = next((store.edge_index.device for store in data.edge_stores), torch.device("cpu"))
    nothing = torch.empty(2, 0, dtype=torch.long, device=device)
    counts = torch.tensor([count for _, count in table.nodes])
    return Data(
        x=torch.repeat_interleave(torch.arange(len(counts)), counts).view(-1, 1).to(device),
        edge_index=torch.cat([nothing, *ends], dim=1),
        edge_number=torch.cat([nothing[0], *kinds]),
        graph_number=torch.tensor([number], device=device),
        num_nodes=int(counts.sum()),
    )

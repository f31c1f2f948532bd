"""A message-passing module without a lowering: run as it is, on the graph, or on private copies of what each node receives.

Its blocks are derivatives. Every receiver gets its own copies of its senders, so that one backward pass per output column
separates them. A sender's copy keeps its own in-edges (from further copies, which do not count and are shared), because some
layers read the degree of the sender. Where that makes no difference, these further copies (the rim) are left out.

The path 0 → 1 → 2 with edges e0, e1 becomes a graph of eight nodes and the edges 0 → 3, 1 → 4, 5 → 1:

    0, 1      senders, one per edge: node 0 for e0, node 1 for e1
    2, 3, 4   receivers: nodes 0, 1, 2
    5, 6, 7   the rim: nodes 0, 1, 2; node 0 sends to the copy of node 1

The derivative of the output at 4 by the features at 1 is the block of e1.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.errors import ModelError
from edgewise.graph.computation_graph import InEdges
from edgewise.model.data_flow import Operation, keys_of
from edgewise.program.hop import Hop
from edgewise.program.layers.base import Layer, Unsupported
from edgewise.question.equality import close, random_weight
from edgewise.trees import tree_flatten, tree_unflatten


@dataclass(frozen=True, eq=False)
class ModuleLayer(Layer):
    """One call of a module with the arguments it was recorded with; only walks use it, so it has no ω and no s."""

    uses_model = True

    module: Any
    leaves: tuple[Any, ...]
    """Flattened arguments; `roles` says what each is."""
    form: Any
    """How they nest as `(args, kwargs)`."""
    roles: tuple[str, ...]
    """Per leaf: `"x"`, `"edge_index"`, `"edge"` (a row per column), `"node"` (a row per node) or `"other"`."""
    in_edges: InEdges
    name: str

    def forward(self, table: Any, hop: Hop, weight: Tensor, own: Tensor | None) -> Tensor:
        """On the graph itself (`table` `[N, in]`), or, if `hop.own` is set, on private copies (`table` `[E + N, in]`)."""
        return self._run(table) if hop.own is None else self._on_copies(table, hop)

    def _run(self, x: Tensor) -> Tensor:
        """The module on the graph as it was recorded, with other features."""
        leaves = [x if role == "x" else leaf for leaf, role in zip(self.leaves, self.roles, strict=True)]
        return self._call(leaves)

    def _call(self, leaves: list[Any]) -> Tensor:
        """The module with these arguments; of several results the first."""
        args, kwargs = tree_unflatten(leaves, self.form)
        result = self.module(*args, **kwargs)
        found: Tensor = result if isinstance(result, Tensor) else result[0]
        return found

    def _on_copies(self, rows: Tensor, hop: Hop) -> Tensor:
        """The outputs of all receivers, `[N, out]`, from `rows` `[E + N, in]`: the senders' copies, then the receivers.

        Without the rim, if outputs and derivatives are then those on the graph itself; otherwise with it. Raises `ModelError`
        if a node's output is another than on the graph itself.
        """
        known = self._table(rows, len(hop.tail))
        if rows.requires_grad:
            found = self._copied(rows, known, rim=False)
            if self._is_true(found, rows, known):
                return found
        found = self._copied(rows, known, rim=True)
        with torch.no_grad():
            if not close(found, self._run(known)):
                raise ModelError(
                    f"The walks of this model cannot be followed: layer {self.name} ({type(self.module).__name__}) gives a "
                    f"node another output when its neighbourhood stands alone. Use ew.explain(...) for its edges instead."
                )
        return found

    def _copied(self, rows: Tensor, known: Tensor, *, rim: bool) -> Tensor:
        """The module on the graph of copies: E + N nodes and E edges; with the rim N nodes and some edges more."""
        graph = self.in_edges
        edges, nodes = len(graph.sender), graph.num_nodes
        everyone = torch.arange(nodes, device=rows.device)
        head = torch.repeat_interleave(everyone, graph.start.diff())  # [E]: the node that receives
        source, receiver = torch.arange(edges, device=rows.device), edges + head
        column, node, x = graph.edge, torch.cat([graph.sender, everyone]), rows  # of the original graph
        if rim:
            copy, place = graph.of_nodes(graph.sender)  # [R] each: the in-edges of each sender's copy
            source = torch.cat([source, edges + nodes + graph.sender[place]])
            receiver, column = torch.cat([receiver, copy]), torch.cat([column, graph.edge[place]])
            node, x = torch.cat([node, everyone]), torch.cat([rows, known])
        leaves = []
        for leaf, role in zip(self.leaves, self.roles, strict=True):
            if role == "x":
                leaves.append(x)
            elif role == "edge_index":
                ends = (source, receiver) if self.module.flow == "source_to_target" else (receiver, source)
                leaves.append(torch.stack(ends))
            else:
                places = {"edge": column, "node": node}.get(role)
                leaves.append(leaf if places is None else leaf.index_select(0, places))
        return self._call(leaves)[edges : edges + nodes]

    def _is_true(self, found: Tensor, rows: Tensor, known: Tensor) -> bool:
        """Whether outputs `[N, out]` are those on the graph itself, and so are the derivatives of a number of them.

        A node's derivatives there are the sums over its copies.
        """
        x = known.clone().requires_grad_()
        true = self._run(x)
        if not close(found.detach(), true.detach()) or not (found.requires_grad and true.requires_grad):
            return False
        along = random_weight(torch.arange(len(true), device=x.device), true.size(1), true).t() - 0.5  # [N, out]
        (of_copies,) = torch.autograd.grad((found * along).sum(), rows, retain_graph=True)
        (of_nodes,) = torch.autograd.grad((true * along).sum(), x)
        source = torch.cat([self.in_edges.sender, torch.arange(len(x), device=x.device)])
        scale = (
            of_nodes.abs().amax().expand(x.size(1))
        )  # a feature that nobody has would have a scale of rounding errors
        return close(torch.zeros_like(x).index_add_(0, source, of_copies), of_nodes, scale)

    @staticmethod
    def _table(rows: Tensor, edges: int) -> Tensor:
        """What every node has, `[N, in]`: the receivers' own rows."""
        return rows[edges:].detach()


def module_layer(operation: Operation, data: Data) -> list[Any]:
    """A layer for a module with one call, one kind of features and the graph's own edges; otherwise `Unsupported`."""
    if len(operation.calls) != 1:
        raise Unsupported(f"{operation.name} passes messages {len(operation.calls)} times inside")
    leaves, form = tree_flatten((operation.args, operation.kwargs or {}))
    keys = keys_of((operation.args, operation.kwargs or {}))
    roles = [_role(leaf, key, operation, data) for leaf, key in zip(leaves, keys, strict=False)]
    if roles.count("x") != 1 or roles.count("edge_index") != 1:
        raise Unsupported(f"{operation.name} is not called with features and the graph's own edge_index")
    flow = operation.function.flow
    in_edges = InEdges.of(data.edge_index, data.num_nodes, flow)
    kept = tuple(leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves)
    return [ModuleLayer(operation.function, kept, form, tuple(roles), in_edges, operation.name)]


def _role(leaf: Any, key: Any, operation: Operation, data: Data) -> str:
    """What an argument is, by its identity and its shape: see `ModuleLayer.roles`."""
    if not isinstance(leaf, Tensor) or leaf.dim() == 0:
        return "other"
    own = operation.own_input
    if key == own or (own is None and leaf.is_floating_point() and leaf.shape == data.x.shape):
        return "x"
    if leaf.shape == data.edge_index.shape and bool(torch.equal(leaf, data.edge_index)):
        return "edge_index"
    if leaf.size(0) == data.edge_index.size(1):
        return "edge"
    return "node" if leaf.size(0) == data.num_nodes else "other"

"""What is known of every tensor while a model runs: whose rows it holds, whose data it depends on, how deep it is.

The memory is kept by storage, and in each storage by view, because PyTorch hands out new tensor objects freely but
never moves data behind our back. A tensor that is in no storage we know came from outside (a buffer, a cache): it may
depend on anything.

Labels are numbers: a column of the given `edge_index` for the kind `EDGE`, a node for the kind `NODE`. Three negative
ones say why an entry has no owner: `FRESH` (made from constants), `LOST` (computed from data), `MIXED` (several owners).
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch_geometric.data import Data

from edgewise.pyg_internals import plain
from edgewise.torch_internals import storage_key

FRESH, LOST, MIXED = -1, -2, -3
EDGE, NODE = "edge", "node"
CONSTANT, OWN, CROSSED = 0, 1, 2
"""What a tensor knows of the edges: nothing; each entry the data of its own column alone; the data of other columns too."""

Labels: TypeAlias = dict[tuple[int, str], Tensor]
"""(axis, kind) -> [size of that axis]: who owns each entry along the axis."""
_View: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...]]


class Mark(NamedTuple):
    """What is known of one tensor."""

    labels: Labels
    reach: int = CONSTANT
    of_nodes: bool = False
    """Whether data of nodes went into it."""
    contracted: bool = False
    """Whether several nodes may have got one number in it."""
    depth: int = 0
    """The most `propagate` calls on any path from the features up to it."""

    @property
    def has_edges(self) -> bool:
        """Whether some axis of it runs over edges."""
        return any(kind == EDGE for _, kind in self.labels)

    @property
    def edge_reach(self) -> int:
        """As `reach`, but data of edges without labels count as data of other edges."""
        return CROSSED if self.reach == OWN and not self.has_edges else self.reach

    def fitted(self, tensor: Tensor) -> "Mark":
        """Only the labels that are as long as the tensor's axes; a single element may carry one label."""
        if not self.labels:
            return self
        sizes = tuple(tensor.shape) or (1,)
        fitting = {key: v for key, v in self.labels.items() if key[0] < len(sizes) and len(v) == sizes[key[0]]}
        return self if len(fitting) == len(self.labels) else self._replace(labels=fitting)

    def raised(self, other: "Mark") -> "Mark":
        """The same labels on data that also depend on what `other` depends on."""
        return Mark(
            self.labels,
            max(self.reach, other.reach),
            self.of_nodes or other.of_nodes,
            self.contracted or other.contracted,
            max(self.depth, other.depth),
        )


NOTHING = Mark({})
STRANGER = Mark({}, CROSSED, of_nodes=True)


@dataclass
class _Cell:
    """One storage. The weak reference keeps its address from being used again."""

    reference: StorageWeakRef
    views: dict[_View, Mark] = field(default_factory=dict)

    def worst(self) -> Mark:
        """What holds for a view that nobody has noted."""
        worst = NOTHING
        for mark in self.views.values():
            worst = worst.raised(mark._replace(reach=mark.edge_reach))
        return worst


def same_labels(a: Labels, b: Labels) -> bool:
    """Whether both name the same owners; the same object is not compared entry by entry."""
    return a is b or (a.keys() == b.keys() and all(same_vector(a[key], b[key]) for key in a))


def same_vector(a: Tensor, b: Tensor) -> bool:
    """Whether two vectors of labels are equal."""
    return a is b or (a.shape == b.shape and torch.equal(a, b))


def origins(data: Data) -> Iterator[tuple[Tensor, Mark]]:
    """The tensors of a graph, with what is known of them at the start.

    >>> data = Data(x=torch.rand(2, 4), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> [list(mark.labels) for _, mark in origins(data)]
    [[(0, 'node')], [(1, 'edge')]]
    """
    data = copy.copy(data)  # asking it what its attributes are leaves notes in it
    for key, value in data.to_dict().items():
        if isinstance(value, Tensor):
            yield plain(value), _origin(data, key, plain(value))


def _origin(data: Data, key: str, value: Tensor) -> Mark:
    axis = data.__cat_dim__(key, value) % value.dim() if value.dim() else 0
    of_numbers = "index" in key and value.dim() > 1  # columns of ends, such as edge_label_index
    if key == "edge_index" or (not of_numbers and data.is_edge_attr(key)):
        return Mark({(axis, EDGE): torch.arange(value.size(axis), device=value.device)}, OWN)
    if of_numbers or "edge" in key:
        return Mark({}, CROSSED)
    if key != "ptr" and data.is_node_attr(key):
        return Mark({(axis, NODE): torch.arange(value.size(axis), device=value.device)}, of_nodes=True)
    return Mark({}, of_nodes=True)


class ShadowMemory:
    """The marks of all tensors that were seen.

    >>> memory, x = ShadowMemory(), torch.randn(3, 2)
    >>> memory.note(x, Mark({(0, NODE): torch.arange(3)}))
    >>> memory.read(x).labels[0, NODE]
    tensor([0, 1, 2])
    >>> memory.read(torch.randn(3, 2)) == STRANGER
    True
    """

    def __init__(self) -> None:
        self._cells: dict[int, _Cell] = {}

    def knows(self, tensor: Tensor) -> bool:
        """Whether the tensor's storage was noted."""
        return tensor.layout is torch.strided and _address(tensor) in self._cells

    def read(self, tensor: Tensor) -> Mark:
        """What is known of a tensor."""
        if tensor.layout is not torch.strided:
            return STRANGER
        cell = self._cells.get(_address(tensor))
        if cell is None:
            return STRANGER
        return cell.views.get(_view(tensor)) or cell.worst()

    def note(self, tensor: Tensor, mark: Mark) -> None:
        """A tensor that was made, or a new view of one: a view that is known keeps its mark."""
        if tensor.layout is torch.strided:
            self._cell(tensor).views.setdefault(_view(tensor), mark.fitted(tensor))

    def note_new(self, tensor: Tensor, mark: Mark) -> None:
        """A tensor that was made; views of tensors that are known are left to be noted with labels when they matter."""
        if not self.knows(tensor):
            self.note(tensor, mark)

    def overwrite(self, tensor: Tensor, before: Mark, after: Mark, *, by_constant: bool) -> None:
        """A tensor was written in place: other views know their owners only if the owners of what was written stayed."""
        if tensor.layout is not torch.strided:
            return
        cell, after = self._cell(tensor), after.fitted(tensor)
        if same_labels(before.labels, after.labels) and (after.labels or by_constant):
            cell.views = {view: mark.raised(after) for view, mark in cell.views.items()}
        else:
            after = after.raised(cell.worst()) if _is_part(tensor) else after
            cell.views = {}
        cell.views[_view(tensor)] = after

    def replace(self, tensor: Tensor, mark: Mark) -> None:
        """A tensor whose mark is known for certain; what was noted of its storage is forgotten."""
        if tensor.layout is torch.strided:
            self._cell(tensor).views = {_view(tensor): mark.fitted(tensor)}

    def _cell(self, tensor: Tensor) -> _Cell:
        storage = tensor.untyped_storage()
        cell = self._cells.get(storage_key(tensor))
        if cell is None:
            cell = self._cells[storage_key(tensor)] = _Cell(StorageWeakRef(storage))
        return cell


def _is_part(tensor: Tensor) -> bool:
    return tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes()


def _address(tensor: Tensor) -> int:
    return storage_key(tensor)


def _view(tensor: Tensor) -> _View:
    return int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride()

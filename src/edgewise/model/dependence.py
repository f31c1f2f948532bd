"""What the results of an operation depend on: whose data are in them, and how deep they are.

Labels say whose an entry is. Whether a *selection* by such entries may have merged columns depends on more: did they look at
data of other columns (`CROSSED`), did several nodes get one number (`contracted`)?
"""

from torch import Tensor

from edgewise.model.axis_labels import AtenCall
from edgewise.model.label_rules import CROSSING, ELEMENT_NAMES, is_integer
from edgewise.model.shadow import CONSTANT, CROSSED, EDGE, MIXED, NOTHING, OWN, Labels, Mark

_ORDERS = frozenset(("sort", "argsort", "topk", "nonzero"))
_MOVES = frozenset(("index", "index_select", "masked_select"))
_INJECTIVE = frozenset(("add", "sub", "rsub", "neg", "clone"))
_TABLES = frozenset(("index", "index_select", "gather", "embedding"))


def common_mark(call: AtenCall, each: list[Labels], *, escaped: bool) -> Mark:
    """What the results of an operation have in common; `each` are the labels of every result.

    Once data of edges has `escaped` to Python, any number may come from there.
    """
    common = NOTHING
    for mark in call.marks:
        common = common if mark is NOTHING else common.raised(mark)
    reach = common.reach
    if reach != CONSTANT:
        reach = max(mark.edge_reach for mark in _read_marks(call, each))
        if reach == OWN and (call.kind.name in CROSSING or _crosses(call, each)):
            reach = CROSSED
    elif escaped:
        reach = CROSSED
    return Mark({}, reach, common.of_nodes, _contracts(call, each), common.depth)


def _read_marks(call: AtenCall, each: list[Labels]) -> list[Mark]:
    """The inputs whose data are in the results: an index only says where the columns of a labelled tensor go."""
    moved = call.kind.name in _MOVES and call.marks[0].has_edges and _num_edge_axes(each[0]) >= _num_edge_axes(call.own)
    return call.marks[:1] if moved else call.marks


def _num_edge_axes(labels: Labels) -> int:
    return sum(kind == EDGE for _, kind in labels)


def _crosses(call: AtenCall, each: list[Labels]) -> bool:
    """Whether an axis of edges was summed up or chosen from, or an entry has several owners."""
    own = [vector for mark in call.marks for vector in mark.labels.values()]
    for labels in each:
        if _num_edge_axes(labels) < _num_edge_axes(call.own):
            return True
        new = (v for (_, kind), v in labels.items() if kind == EDGE and not any(v is known for known in own))
        if any(bool((vector == MIXED).any()) for vector in new):
            return True
    return False


def _contracts(call: AtenCall, each: list[Labels]) -> bool:
    """Whether several nodes may have got one number: by arithmetic on numbers of nodes, or by a table."""
    if not call.outputs or not is_integer(call.outputs[0]) or call.kind.name in _ORDERS:
        return False
    name, edges = call.kind.name, any(_num_edge_axes(labels) for labels in each)
    inherited = call.marks[:1] if name in _TABLES and call.own else call.marks
    if any(mark.contracted for mark in inherited):
        return True
    if name in _TABLES:
        return edges and not call.marks[0].has_edges and not _one_to_one(call.first, call.inputs[-1])
    injective = name in _INJECTIVE and len(call.inputs) == 1
    return edges and (call.kind.elementwise or name in ELEMENT_NAMES) and not injective


def _one_to_one(table: Tensor, index: Tensor) -> bool:
    """Whether a table gives the numbers in `index` different values; negative ones stand for "none"."""
    if table.dim() != 1 or not is_integer(index):
        return table.dim() == 1
    values = table[index.reshape(-1).unique()]
    values = values[values >= 0]
    return len(values.unique()) == len(values)

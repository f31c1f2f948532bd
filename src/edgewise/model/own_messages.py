"""Messages that a model sends by its own code, past every layer: no weight reaches them, so such a model is refused.

Whether it sends any is found out by running it on the same nodes with other edges, while every layer gives what it gave
before. Degrees stay as they were, so that whatever differs in front of a layer or behind the last one came along a column.
That holds however the code is written: scatters, products, loops in Python, numpy. It takes two passes, of those models alone
whose own code reads columns (`column_reads.py`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from edgewise.errors import ModelError
from edgewise.model.call import GraphForward, ModelCall
from edgewise.model.column_reads import (
    TABLE,
    ColumnReads,
    PassStep,
    edge_states,
    may_hold_columns,
    node_tables,
    place_of,
    reduces_itself,
    tensors,
)
from edgewise.model.data_flow import Key, leaves_of
from edgewise.model.global_state import pop_mode, push_mode
from edgewise.model.hooks import Layers
from edgewise.model.layer_steps import LayerSteps, own_line
from edgewise.model.module_tree import modules_of
from edgewise.model.other_graphs import (
    KeptRows,
    doubled,
    nodes_of_kinds,
    shaken,
    swapped,
    with_all_nodes_asked,
    with_another_attribute,
    with_few_rows_kept,
    with_other_edges,
    with_shaken_rows,
    with_shuffled_edges,
    with_swapped_rows,
    with_unequal_rows,
)
from edgewise.model.shadow import Mark, origins
from edgewise.program.operations import plain_name
from edgewise.pyg_internals import plain

_SEED = 20250803
_COLUMNS = 64
_LOOKS = 13
"""How often a model runs, at most, to find out what weights of edges know: three layers with `_BUSY` columns each."""
_BUSY = 4
"""Columns that are looked at one by one, those with the most others at their ends."""
_ENOUGH = 0.5
"""The share of the columns that start elsewhere: where degrees and neighbours leave room for less, more is tried."""
_TRIALS = (1.0, 30.0)
"""How much larger numbers get where the given ones show nothing."""
_ROUNDING = 1e-5
"""Of the largest number of a tensor: so much may come from another order of summation."""
_KEPT = " (the rows are chosen by an index or a matrix that the model keeps)"
_SUMS = ("add", "scatter", "segment", "put", "setitem", "sparse", "spmm", "reduce", "mm", "matmul", "einsum")


Carried: TypeAlias = tuple[Tensor, Tensor, tuple[int, int]]
"""Numbers of edges that a layer was given: the columns `[2, edges]`, the numbers `[edges, k]`, how many nodes each end has."""


def refuse_own_messages(
    call: ModelCall, layers: Layers, data: Data, steps: list[PassStep], known: set[Key], output: Tensor
) -> None:
    """Refuse a model that sends messages past its layers; `steps` are those of a pass, `known` the tensors before it.

    Raises:
        ModelError: The text names the line of the code that sends them.
    """
    if not data.edge_index.size(1):
        return
    _refuse_own_sums(call, layers, data)
    reads_columns, strangers = _columns_read(call, data, steps, known, output)
    if not reads_columns:
        return
    reads = _reads(call, data)
    reached = reads.reach(steps, output)
    if reads.reach_edges(steps):
        _refuse_sums_in_edges(call, layers, data)
    if not reached:
        return
    reads.fixed |= strangers
    data, first = _first_pass(call, layers, with_unequal_rows(call, data, _SEED))
    closely = _lines(call, data, first)
    used = closely.used(first.steps, first.output)
    first.readouts = closely.readouts(first.steps, used, data.num_nodes)
    given = _columns_given(call, data)
    if any(closely.puts_together(first.steps[number], ends) for number in used for ends in given) or _sends(
        call, layers, data, reads, first
    ):
        _refuse(call, data, first)


def _first_pass(call: ModelCall, layers: Layers, data: Data) -> tuple[Data, "_Pass"]:
    """A pass, and the graph that it is of: every node is asked about and most columns may swap ends, if that can be."""
    graphs = [with_all_nodes_asked(call, data), data]
    if with_other_edges(call, data, _SEED)[1] < _ENOUGH:
        twice = doubled(call, data, _SEED)
        if twice is not None and with_other_edges(call, twice, _SEED)[1] >= _ENOUGH:
            graphs.insert(0, with_all_nodes_asked(call, twice))
    for graph in graphs[:-1]:
        try:
            first = _Pass(layers)
            first.run(call, graph)
            return graph, first
        except ModelError:  # a model that takes these pairs, or this number of nodes, alone
            continue
    first = _Pass(layers)
    first.run(call, data)
    return data, first


def _columns_read(
    call: ModelCall, data: Data, steps: list[PassStep], known: set[Key], output: Tensor
) -> tuple[bool, bool]:
    """Whether the model's own code read columns, or a tensor that nobody was seen to make; whether such a one may be an index.

    A quick look by identity.
    """
    columns = _columns_of(call, data)
    seen = {key[0] for key in known if key is not None}
    seen.update(map(id, _pairs(data)))
    found = strangers = False
    for step in steps:
        is_layer = isinstance(step.function, MessagePassing)
        for leaf in leaves_of((step.args, step.kwargs)):
            if isinstance(leaf, Tensor):
                found |= id(leaf) not in seen or (not is_layer and id(leaf) in columns)
                strangers |= id(leaf) not in seen and may_hold_columns(leaf)
        made = [id(leaf) for leaf in leaves_of(step.result) if isinstance(leaf, Tensor)]
        seen.update(made)
        if is_layer:
            columns.update(made if step.of_edges else made[1:])  # attention weights, and whose they are
    return found or id(output) not in seen, strangers


def _columns_given(call: ModelCall, data: Data) -> list[Tensor]:
    """The columns that the model gets: those of the graph, or of each type."""
    typed = call.typed_tensors(data)
    if typed is None:
        return [plain(data.edge_index)]
    return [plain(tensor) for key, tensor in typed.tensors if key in typed.ends and tensor.size(1)]


def _pairs(data: Data) -> list[Tensor]:
    """The pairs that a question about links asks about."""
    return [data.link_pairs.ends] if hasattr(data, "link_pairs") else []


def _columns_of(call: ModelCall, data: Data) -> set[int]:
    """Identities of the tensors that may hold columns, or something of each."""
    found = {id(buffer) for buffer in _buffers(call) if buffer.dim() > 1 or may_hold_columns(buffer)}
    typed = call.typed_tensors(data)
    if typed is not None:
        return found | {id(tensor) for key, tensor in typed.tensors if key not in typed.rows}
    num_edges = data.edge_index.size(1)
    for key, value in data.to_dict().items():
        if isinstance(value, Tensor) and ("edge" in key or (value.dim() and num_edges in value.shape)):
            found.add(id(value))
    return found


def _reads(call: ModelCall, data: Data) -> ColumnReads:
    typed = isinstance(call.forward, GraphForward)
    given: Iterator[tuple[Tensor, Mark]] = call.marks(data) if typed else origins(data)
    reads = ColumnReads.of(given, chain(call.model.parameters(), _statistics(call), _pairs(data)))
    tables = (one for one in _buffers(call) if one.dim() > 1 and not may_hold_columns(one))
    reads.known.update((place_of(one), TABLE) for one in tables)  # perhaps between nodes and edges
    return reads


def _statistics(call: ModelCall) -> Iterator[Tensor]:
    """What norms keep of rows that they saw: a number for each feature, which comes from no columns."""
    return (buffer for buffer in _buffers(call) if buffer.dim() < 2 and not may_hold_columns(buffer))


def _buffers(call: ModelCall) -> Iterator[Tensor]:
    return (buffer for module in modules_of(call.model) for buffer in module._buffers.values() if buffer is not None)


class _Pass(LayerSteps):
    """A pass that keeps what layers got and gave; one that follows `another` makes every layer give what it gave there."""

    def __init__(
        self, layers: Layers, another: "_Pass | None" = None, change: Callable[[Tensor], Tensor] = Tensor.clone
    ) -> None:
        super().__init__(layers, [], everywhere=True, lines=another is None)
        self._another, self._change = another, change
        self._begun: list[list[Tensor]] = []
        self.carried: list[Carried] = []
        """What layers were given of edges."""
        self.got: list[list[Tensor]] = []
        self.gave: list[list[Tensor]] = []
        self.output: Any = None
        self.readouts: list[tuple[int, int]] = []
        """Of the first pass: (number of the step from the end, number of the tensor that it got)."""

    def run(self, call: ModelCall, data: Data) -> None:
        """Run the model."""
        with torch.no_grad(), self.watching():
            self.output = call.own_output(data)

    def begin(self, module: MessagePassing, args: Any, kwargs: dict[str, Any]) -> None:
        """Keep the tables of nodes, which the model may write into later."""
        self._begun.append([tensor.clone() for tensor in node_tables(module, args, kwargs)])
        states, tables = edge_states(module, args, kwargs), self._begun[-1]
        if states and tables:
            sizes = (len(tables[0]), len(tables[min(len(tables) - 1, 1)]))
            self.carried += [(ends.clone(), values.clone(), sizes) for ends, values in states]

    def end(self, module: MessagePassing, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
        """Keep, or replace, what the layer gives of nodes."""
        number = len(self.got)
        self.got.append(self._begun.pop())
        if self._another is not None and number < len(self._another.gave):
            result = _replaced(result, [self._change(tensor) for tensor in self._another.gave[number]])
        self.gave.append([tensor.clone() for tensor in _of_nodes(result)])
        super().end(module, args, kwargs, result)
        return result

    def attend(self, module: MessagePassing, tables: tuple[Any, ...], result: Any) -> None:
        """Keep what attention was made of; it is made anew in each pass."""
        self.got.append([tensor.clone() for tensor in tensors(tables)])
        self.gave.append([])
        super().attend(module, tables, result)

    @classmethod
    def like(
        cls,
        first: "_Pass",
        call: ModelCall,
        layers: Layers,
        data: Data,
        change: Callable[[Tensor], Tensor] | None = None,
    ) -> "_Pass":
        """A pass on other data, in which layers give what they gave in the first one, perhaps changed."""
        second = cls(layers, first, change or Tensor.clone)
        try:
            second.run(call, data)
        except ModelError:
            second.got = []
        return second

    def is_as(self, first: "_Pass", rows: Tensor | None = None, num_nodes: int = -1) -> bool:
        """Whether layers got the same, and the output is the same; perhaps only some rows of tables of nodes count."""
        before, after = first.seen(), self.seen()
        if len(before) != len(after):
            return False
        pairs = [*zip(before, after, strict=True), *self._read_out(first)]
        if rows is None:
            return all(_close(a, b) for a, b in pairs)
        return all(_close(a[rows], b[rows]) for a, b in pairs if a.shape == b.shape and a.shape[:1] == (num_nodes,))

    def differing(self, first: "_Pass") -> list[Tensor]:
        """What of the first pass is another here."""
        pairs = [*zip(first.seen(), self.seen(), strict=False), *self._read_out(first)]
        return [a for a, b in pairs if not _close(a, b)]

    def _read_out(self, first: "_Pass") -> Iterator[tuple[Tensor, Tensor]]:
        """The tables of nodes that the same readouts got in both passes: a sum over all nodes may hide what moved."""
        for number, leaf in first.readouts:
            if -number > len(self.steps) or self.steps[number].function is not first.steps[number].function:
                continue
            before, after = (list(tensors((p.steps[number].args, p.steps[number].kwargs))) for p in (first, self))
            if len(before) == len(after):
                yield before[leaf], after[leaf]

    def reads(self, columns: Tensor) -> bool:
        """Whether the model's own code read these very columns, perhaps by a name that it has from elsewhere."""
        place = place_of(plain(columns))
        return any(place_of(tensor) == place for step in self.steps for tensor in tensors((step.args, step.kwargs)))

    def seen(self) -> list[Tensor]:
        """What each layer got, and the output behind them."""
        return [*chain.from_iterable(self.got), *tensors(self.output)]


def _of_nodes(result: Any) -> list[Tensor]:
    """The tables of nodes among what a layer gives; attention weights come behind them."""
    return list(tensors(result[0] if isinstance(result, (tuple, list)) else result))


def _replaced(result: Any, tables: list[Tensor]) -> Any:
    if isinstance(result, (tuple, list)):
        return type(result)((_replaced(result[0], tables), *result[1:])) if result else result
    if isinstance(result, dict):
        return dict(zip(result, tables, strict=True)) if len(result) == len(tables) else result
    return tables[0] if tables else result


# --- whether there are any ------------------------------------------------------------------------------------------------


def _sends(call: ModelCall, layers: Layers, data: Data, reads: ColumnReads, first: _Pass) -> bool:
    """Whether something comes along columns, past the layers; a ReLU may hide it until everything has other numbers."""
    if _sends_here(call, layers, data, reads, first):
        return True
    for by in _TRIALS:
        other = with_shaken_rows(call, data, _SEED, by)
        same = _Pass.like(first, call, layers, other, partial(shaken, seed=_SEED, by=by))
        same.readouts = first.readouts
        if same.got and _sends_here(call, layers, other, reads, same):
            return True
    return False


def _sends_here(call: ModelCall, layers: Layers, data: Data, reads: ColumnReads, first: _Pass) -> bool:
    """The same, with these numbers. What cannot be tried is believed to."""
    moved, share = with_other_edges(call, data, _SEED)
    second = _Pass.like(first, call, layers, moved)
    if share and (reads.fixed or second.reads(data.edge_index)) and _features_travel(call, layers, data, first):
        return True
    if not second.is_as(first):
        # with numbers of Python's, something of each node may have been found by other means
        is_certain = not (reads.escaped or reads.unseen) or call.has_types
        by_nodes = all(len(table) == data.num_nodes for table in second.differing(first) if table.dim())
        if is_certain or not by_nodes or not second.got:
            return True
        return _features_travel(call, layers, data, first) or _features_travel(call, layers, moved, second)
    if share >= _ENOUGH:
        return False
    as_shuffled = _is_as_shuffled(call, layers, data, first)
    if as_shuffled or (as_shuffled is False and call.has_types):
        return not as_shuffled
    if bool((data.edge_index[0] == data.edge_index[1]).all()):
        return True  # loops alone: nobody can tell a message from a number of the node's own
    if as_shuffled is False and _features_travel(call, layers, data, first):
        return True
    return _one_travels(call, layers, data, first) or _one_attribute_travels(call, layers, data, first)


def _close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    if not a.is_floating_point() or not a.numel():
        return torch.equal(a, b)
    a, b = (t.double().nan_to_num(0.0, 0.0, 0.0) for t in (a, b))
    rounding = max(_ROUNDING, 64 * torch.finfo(torch.float32).eps)
    return bool((a - b).abs().max() <= rounding * a.abs().max())


def _features_travel(call: ModelCall, layers: Layers, data: Data, first: _Pass) -> bool:
    """Whether rows of some nodes depend on the features of others, which are swapped: sums over all nodes stay."""
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(_SEED))
    others = order[: (data.num_nodes + 1) // 2].to(data.edge_index.device)
    return _travels(call, layers, data, first, others, order[len(others) :].to(others.device))


def _one_travels(call: ModelCall, layers: Layers, data: Data, first: _Pass) -> bool:
    """The same for a single column: whether the row at one of its ends depends on the features at the other."""
    ends = plain(data.edge_index)
    ends = ends[:, ends[0] != ends[1]]
    return any(_travels(call, layers, data, first, *_apart(way, data)) for way in (ends, ends.flip(0)))


def _apart(ends: Tensor, data: Data) -> tuple[Tensor, Tensor]:
    """The nodes whose features are swapped, and the one that must not notice: the ends of one of the columns.

    The first end's are swapped with those of a node that is no neighbour of the second, if there is one: sums over nodes stay.
    """
    batch = data.get("batch")
    graph = batch if isinstance(batch, Tensor) and len(batch) == data.num_nodes else ends.new_zeros(data.num_nodes)
    for one, two in ends[:, :_COLUMNS].t():
        strange = graph == graph[one]
        strange[torch.stack([one, two])] = False
        strange[ends[0, ends[1] == two]] = False
        strange[ends[1, ends[0] == two]] = False
        if bool(strange.any()):
            return torch.stack([one, strange.nonzero()[0, 0]]), two.view(1)
    return ends[0, :1], ends[1, :1]


def _travels(call: ModelCall, layers: Layers, data: Data, first: _Pass, others: Tensor, rows: Tensor) -> bool:
    if not len(others) or not len(rows):
        return False
    if call.has_types:
        return False  # features of types are not swapped

    def change(table: Tensor) -> Tensor:
        return swapped(table, others) if table.dim() and len(table) == data.num_nodes else table.clone()

    second = _Pass.like(first, call, layers, with_swapped_rows(data, others), change)
    return not second.is_as(first, rows, data.num_nodes)


def _is_as_shuffled(call: ModelCall, layers: Layers, data: Data, first: _Pass) -> bool | None:
    """Whether another graph, which may have columns twice, gives the same; None if there is no such graph."""
    shuffled = with_shuffled_edges(call, data, _SEED)
    before, after = ((plain(d.edge_index)[0] * data.num_nodes + plain(d.edge_index)[1]) for d in (data, shuffled))
    if torch.equal(before.sort().values, after.sort().values):
        return None
    return _Pass.like(first, call, layers, shuffled).is_as(first)


def _one_attribute_travels(call: ModelCall, layers: Layers, data: Data, first: _Pass) -> bool:
    """Whether the attributes of a column reach its nodes, but not all nodes as a mean over all columns does."""
    if call.has_types:
        return False
    second = _Pass.like(first, call, layers, with_another_attribute(data))
    own = torch.zeros(data.num_nodes, dtype=torch.bool, device=data.edge_index.device)
    own[plain(data.edge_index)[:, 0]] = True
    near, far = own.nonzero().view(-1), (~own).nonzero().view(-1)
    return not second.is_as(first, near, data.num_nodes) and second.is_as(first, far, data.num_nodes)


# --- on the way to a layer, as weights or attributes of edges -------------------------------------------------------------


def _refuse_sums_in_edges(call: ModelCall, layers: Layers, data: Data) -> None:
    """Refuse weights or attributes of edges, given to a layer, that know nodes which are no ends of theirs.

    Attention written by hand does know them, through its softmax: weights that add up to the same at every node are none.
    """
    data, first = _first_pass(call, layers, with_unequal_rows(call, data, _SEED))
    for kept in islice(_kept_rows(call, data, first), _LOOKS):
        second = _Pass.like(first, call, layers, with_few_rows_kept(call, data, kept), partial(_others_swapped, kept))
        if len(first.carried) == len(second.carried) and any(
            map(partial(_knows_others, kept), first.carried, second.carried)
        ):
            _refuse(call, data, first)


def _kept_rows(call: ModelCall, data: Data, first: _Pass) -> Iterator[KeptRows]:
    """Which nodes keep their features: half of them, and the ends of a few columns alone, beside which the most others are."""
    counts = sorted({len(rows) for rows in nodes_of_kinds(call, data)})
    draw = torch.Generator().manual_seed(_SEED)
    yield {count: (torch.randperm(count, generator=draw) < count // 2).to(data.edge_index.device) for count in counts}
    for ends, _, sizes in first.carried:
        if not {*sizes} <= {*counts}:
            continue
        degree = sum(torch.bincount(side, minlength=size)[side] for side, size in zip(ends, sizes, strict=True)) - 2 * (
            ends[0] == ends[1]
        )
        for column in degree.argsort(descending=True)[:_BUSY].tolist():
            kept = {count: torch.zeros(count, dtype=torch.bool, device=ends.device) for count in counts}
            for side, size in zip(ends[:, column], sizes, strict=True):
                kept[size][side] = True
            yield kept


def _others_swapped(kept: KeptRows, table: Tensor) -> Tensor:
    """A table of nodes in which the rows of all others are swapped."""
    others = ~kept[len(table)] if table.dim() and len(table) in kept else table.new_zeros(0, dtype=torch.bool)
    return swapped(table, others.nonzero().view(-1)) if bool(others.any()) else table.clone()


def _knows_others(kept: KeptRows, before: Carried, after: Carried) -> bool:
    """Whether numbers of columns whose ends keep their features are others, and not because they are made to add up."""
    (ends, old, sizes), (ends_after, new, _) = before, after
    if not torch.equal(ends, ends_after) or old.shape != new.shape or not {*sizes} <= kept.keys():
        return False  # columns chosen by features are others here
    columns = kept[sizes[0]][ends[0]] & kept[sizes[1]][ends[1]]
    for a, b in zip(old.double().t(), new.double().t(), strict=True):
        if not _close(a[columns], b[columns]) and not any(_adds_up(side, a, b) for side in ends):
            return True
    return False


def _adds_up(side: Tensor, before: Tensor, after: Tensor) -> bool:
    """Whether the numbers of the columns at each node have the sum that they had."""
    size = int(side.max()) + 1
    return _close(*(values.new_zeros(size).index_add(0, side, values) for values in (before, after)))


# --- the refusal ----------------------------------------------------------------------------------------------------------


Line: TypeAlias = tuple[str, Any, Any]
"""Where a step is, its function and its result."""


def _refuse(call: ModelCall, data: Data, first: _Pass) -> None:
    reads = _lines(call, data, first)
    raise _refusal(_sum_of_messages(reads.lines, data.num_nodes) or reads.met, _KEPT if reads.fixed else "")


def _refusal(line: str, how: str = "") -> ModelError:
    where = f"at {line}" if line else "outside its layers"
    return ModelError(
        f"The model sends messages by code of its own, {where}{how}. What moves between nodes past its layers gets no weight, "
        f"so every score would be wrong. Let a layer send them: torch_geometric.nn.SimpleConv(aggr='sum') adds up the "
        f"rows of a node's neighbours, and a subclass of torch_geometric.nn.MessagePassing does anything else in `message`."
    )


def _lines(call: ModelCall, data: Data, first: _Pass) -> ColumnReads:
    """What the code of a pass read, line by line."""
    reads = _reads(call, data)
    reads.reach(first.steps, first.output)
    return reads


def _sum_of_messages(lines: list[Line], num_nodes: int) -> str:
    """The line that puts rows of edges together, row by row of the nodes if there is one such."""
    chosen = (_sums_of_nodes(lines, num_nodes) or _sums(lines) or lines)[-1:]
    return chosen[0][0] if chosen else ""


def _sums(lines: list[Line]) -> list[Line]:
    return [one for one in lines if any(word in plain_name(one[1]) for word in _SUMS)]


def _sums_of_nodes(lines: list[Line], num_nodes: int) -> list[Line]:
    return [one for one in _sums(lines) if one[2].dim() and len(one[2]) == num_nodes]


# --- inside a layer -------------------------------------------------------------------------------------------------------


def _refuse_own_sums(call: ModelCall, layers: Layers, data: Data) -> None:
    """Refuse layers whose own `aggregate` or `update` puts together more rows of edges than `message` returned.

    With messages that are all 0 such a call must not notice that columns have other ends; nor must `update`, whatever
    `aggregate` gave.
    """
    own = [module for module in {module: None for _, module in layers} if reduces_itself(module)]
    if not own:
        return
    data, _ = _first_pass(call, layers, with_unequal_rows(call, data, _SEED))
    moved, share = with_other_edges(call, data, _SEED)
    if not share:
        return
    for kind, made in (("message", torch.zeros_like), ("aggregate", _drawn_like)):
        passes: list[_Inside] = []
        for graph in (data, moved):
            passes.append(_Inside(layers, passes[0] if passes else None))
            with _replacing(own, kind, made):
                passes[-1].run(call, graph)
        line = _line_that_differs(passes, own, data, sums_alone=kind == "message")
        if line is not None:
            raise _refusal(line)


@contextmanager
def _replacing(own: list[MessagePassing], kind: str, made: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Inside, what `message` or `aggregate` of some layers returns is made of its shape alone."""

    def replaced(module: MessagePassing, inputs: Any, result: Any) -> Any:
        return made(result) if isinstance(result, Tensor) else result

    handles = [getattr(module, f"register_{kind}_forward_hook")(replaced) for module in own]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _drawn_like(table: Tensor) -> Tensor:
    """The same numbers for every table of a shape."""
    return torch.rand(table.shape, generator=torch.Generator().manual_seed(_SEED), dtype=torch.float64).to(table)


class _Inside(_Pass):
    """A pass that keeps what layers found, before it is replaced, and the lines of what they did."""

    def __init__(self, layers: Layers, another: "_Inside | None" = None) -> None:
        super().__init__(layers, another)
        self.found: list[tuple[MessagePassing, list[Tensor], list[Line]]] = []
        self._watched: list[_Results] = []

    def begin(self, module: MessagePassing, args: Any, kwargs: dict[str, Any]) -> None:
        """Watch the operations of a layer that reduces rows itself."""
        super().begin(module, args, kwargs)
        self._watched.append(_Results())
        push_mode(self._watched[-1])

    def end(self, module: MessagePassing, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
        """Keep what the layer found."""
        watched = self._watched.pop()
        pop_mode(watched)
        self.found.append((module, [tensor.clone() for tensor in _of_nodes(result)], watched.made))
        return super().end(module, args, kwargs, result)


class _Results(TorchFunctionMode):
    """Keeps what operations make, with their lines."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Line] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.is_floating_point():
            self.made.append((own_line(inside=True), func, result.clone()))
        return result


def _line_that_differs(passes: list[_Inside], own: list[MessagePassing], data: Data, *, sums_alone: bool) -> str | None:
    """The line at which a layer that reduces rows itself first finds something else; None if all find the same.

    `sums_alone`: a sum for each node counts, even if it is multiplied by what is 0 here. PyG's softmax does not.
    """
    num_nodes = int(data.num_nodes or 0)
    sums_alone &= data.edge_index.size(1) != num_nodes  # else rows of edges look like rows of nodes
    for (module, before, made), (_, after, remade) in zip(passes[0].found, passes[1].found, strict=False):
        if module not in own:
            continue
        lines = [a for a, b in zip(made, remade, strict=False) if a[0] and not _close(a[2], b[2])]
        sums = _sums_of_nodes(lines, num_nodes)
        if len(before) != len(after) or not all(map(_close, before, after)):
            return (sums or _sums(lines) or lines or [("", None, None)])[-1][0]
        if sums and sums_alone:
            return sums[0][0]
    return None

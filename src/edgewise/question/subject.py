"""The user's model and data, as a question holds them: never touched, run through a twin, watched for changes."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import RLock, get_ident, local
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.arguments import shown
from edgewise.cores import stop_if_asked
from edgewise.errors import EdgewiseError, SettingError, StaleQuestionError
from edgewise.graph.cut import Cut
from edgewise.graph.inputs import check_devices
from edgewise.graph.joined_graphs import MOST_KEPT
from edgewise.model.bit_sums import bit_sums
from edgewise.model.call import Forward, GraphForward, ModelCall, check_kind, check_model
from edgewise.model.contents import Photographer, same, same_tensor
from edgewise.model.fingerprint import Fingerprint, own_function
from edgewise.model.forks import kept_over_forks, let_fork
from edgewise.model.generators import generators_among
from edgewise.model.global_state import refuse_autocast, thread_kept
from edgewise.model.gradient_stops import may_hide, refuse_writes
from edgewise.model.hooks import Layers
from edgewise.model.module_tree import modules_of
from edgewise.model.node_tables import NodeParameter, Prepared, find_tables, rows_in, with_tables
from edgewise.model.reach import CodeReach
from edgewise.model.trace import Trace, record
from edgewise.model.twin import Twin, lent, make_twin, unwrapped, usable_model
from edgewise.model.typed_call import TypedForward
from edgewise.pyg_internals import plain
from edgewise.question.joined_tensors import JoinedTensors
from edgewise.question.repetition import Repetition

_LARGE = 2**22
"""Numbers of a tensor that is remembered by a checksum instead of a copy."""

_LOOKED_THROUGH = 2**23
"""Numbers of an `edge_index` in which columns that came to a cut are looked for each time."""


class _Taken(local):
    number = 0


_taken = _Taken()
"""How many loans this thread has taken."""


@contextmanager
def _counted() -> Iterator[None]:
    _taken.number += 1
    try:
        yield
    finally:
        _taken.number -= 1


class Loan:
    """The model that is run: a twin of the user's, or the user's own if it could not be copied. Loans may nest.

    Another thread may train the parameters, which a twin shares. Every loan ends with a look whether they are those of
    `mark`: all numbers of a question belong to one state of the model, or there are none.
    """

    def __init__(self, twin: Twin, mark: Fingerprint) -> None:
        self._twin, self._mark, self._depth, self._lock = twin, mark, 0, RLock()
        self._helpers: set[int] = set()
        self._is_torn = False
        kept_over_forks(self)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """The model, ours for a while: no other thread runs this twin meanwhile, and gradients are on."""
        if get_ident() in self._helpers:
            stop_if_asked()
            yield
            return
        if not _taken.number:
            let_fork()
        with self._lock, _counted():
            if self._is_torn:
                raise StaleQuestionError(
                    "Another thread was using this question when this process was forked, so that its model was left in the "
                    "middle of a pass. Ask again: ew.Question(model, data, …)."
                )
            if self._depth:
                yield
                return
            refuse_autocast()
            self._depth = 1
            try:
                if self._twin.borrowed:
                    with thread_kept(), lent(self._twin.model):
                        yield
                else:
                    with thread_kept(), torch.inference_mode(mode=False), torch.enable_grad():
                        yield
            except EdgewiseError as error:  # perhaps only because the numbers moved under our hands
                self._check(error)
                raise
            except RuntimeError as error:
                refuse_writes(error)
                raise
            finally:
                self._depth = 0
            self._check()

    def held_still(self, seconds: float) -> bool:
        """Wait until no other thread runs the model, and let none do so; False if that takes longer."""
        return self._lock.acquire(timeout=seconds)

    def let_go(self) -> None:
        """After `held_still`."""
        self._lock.release()

    def tear(self) -> None:
        """In a forked process: the thread that was running the model is not there to end its pass."""
        self._lock, self._depth, self._is_torn = RLock(), 0, True

    @property
    def is_shared(self) -> bool:
        """Whether several threads may run modules of it at once: a twin is ours, the user's own is lent to one of them."""
        return not self._twin.borrowed

    @contextmanager
    def helped(self) -> Iterator[None]:
        """In a thread that works for the one who has taken the model, and who waits: it takes nothing itself."""
        self._helpers.add(get_ident())
        try:
            with torch.inference_mode(mode=False), torch.enable_grad():
                yield
        finally:
            self._helpers.discard(get_ident())

    def _check(self, cause: EdgewiseError | None = None) -> None:
        what = "" if isinstance(cause, StaleQuestionError) else self._mark.moved()
        if what:
            raise _stale(what) from cause


def _tables_of(call: ModelCall, layers: Layers, example: Data, part: Cut) -> tuple[NodeParameter, ...]:
    """The parameters with a row for each node of the graph of which the example is a part."""
    assert part.node_id is not None
    forward, pairs = call.forward, example.get("link_pairs")
    sizes = {"": (part.num_nodes, len(part.node_id))}
    if isinstance(forward, GraphForward):
        if type(forward) is not TypedForward:
            return ()
        rows = forward.part(example).nodes
        sizes = {kind: (count, len(rows[kind])) for kind, count in forward.table.nodes}

    def prepared(tables: tuple[NodeParameter, ...]) -> Prepared:
        carried = _carrying(example, call.model, tables, forward, part)
        local = [example.edge_index, *([] if pairs is None else [pairs.ends])]
        if isinstance(forward, TypedForward):
            typed = forward.part(example)
            local = [typed.data[kind].edge_index for kind in typed.columns]
        return partial(replace(call, node_tables=tables).own_output, carried), local

    with torch.no_grad():
        return find_tables(call.model, layers, prepared, sizes)


def _carrying(graph: Data, model: nn.Module, tables: tuple[NodeParameter, ...], forward: Any, part: Cut | None) -> Data:
    """The graph with the rows of its nodes; of a typed one its `forward` hands them out."""
    if isinstance(forward, TypedForward):
        forward.carry({(table.kind, table.attribute): rows_in(model, table) for table in tables})
        return graph
    return with_tables(graph, model, tables, None if part is None else part.node_id)


class Subject:
    """A model that is explained: checked, copied onto the device that was asked for, and remembered as it was."""

    tables: tuple[NodeParameter, ...]
    """Its parameters with a row for each node."""
    example: Data
    """The graph on which `first` was recorded."""
    is_scripted: bool
    """Whether a part of it, or of what its code reaches, is scripted: operations in there cannot be watched."""

    def __init__(
        self,
        model: Any,
        forward: Forward | None,
        device: Any,
        example: Data,
        *,
        each_graph: bool = False,
        held: bool = True,
        part: Cut | None = None,
        may_be_proved: bool = False,
    ) -> None:
        """`part` says which part of a larger graph the example is; `may_be_proved` who asks `check_repeated` otherwise."""
        self.user_model = model
        check_kind(model)
        self._mark = Fingerprint(model, forward, whole=held)
        moved = _on_device(unwrapped(model), device)
        check_devices(moved, example)

        def run(ours: nn.Module) -> Trace:
            self._mark.watch_writes(ours)
            self.layers, call = check_model(ours), ModelCall(ours, forward, each_graph)
            self.tables = () if part is None else _tables_of(call, self.layers, example, part)
            self.example = example if part is None else _carrying(example, ours, self.tables, forward, part)
            call = replace(call, node_tables=self.tables)
            reached = CodeReach(modules_of(ours), own_function(forward)).reached
            self.is_scripted = may_hide(ours, reached)
            once = Repetition(
                lambda: record(call, self.layers, self.example),
                lambda changes: replace(call, changes_input=changes).own_output(self.example),
                generators_among(reached),
            )
            self._unrepeated = once if may_be_proved and once.is_quiet else None
            if self._unrepeated is None:
                once.check()
            return once.first

        try:
            self.twin, self.first = usable_model(moved, run, tensors=forward is not None)
        except EdgewiseError as error:
            if self._mark.moved():
                raise _stale(self._mark.moved()) from error
            raise
        self._mark.forgive_own_changes()
        self.call = ModelCall(self.twin.model, forward, each_graph, node_tables=self.tables)
        self.loan = Loan(self.twin, self._mark)
        if held and not self.twin.borrowed:
            self._mark.forgive_writes(self._repeats)

    def _repeats(self) -> bool:
        """Whether the model gives the same on the example once more."""
        call = replace(self.call, changes_input=self.first.changes_input)
        with self.loan.taken(), torch.no_grad():
            again = call.own_output(self.example)
        return again.shape == self.first.output.shape and same_tensor(self.first.output, again)

    def called_as(self, forward: Forward, example: Data) -> "Subject":
        """The same model, on the same loan, called in another way."""
        other = copy.copy(self)
        other.call, other.example = ModelCall(self.twin.model, forward, node_tables=self.tables), example
        with self.loan.taken():
            other.first = record(other.call, self.layers, example)
        return other

    @staticmethod
    def asked_about(
        model: nn.Module,
        asked: Any,
        example: Data,
        known: "Subject | None",
        part: Cut | None = None,
        *,
        may_be_proved: bool = False,
    ) -> "Subject":
        """The subject of a question; `known` is what another question has of the same model, called as this one asks."""
        if known is not None:
            return known.called_as(asked.forward, known.carrying(example, part))
        options = {"held": asked.held, "part": part, "may_be_proved": may_be_proved}
        return Subject(model, asked.forward, asked.device, example, **options)

    def check_repeated(self, *, is_proved: bool) -> None:
        """Run the model on the example once more, unless it is proved to be a program or has been run twice before.

        Raises:
            ModelError: If it does not give the same.
        """
        once, self._unrepeated = self._unrepeated, None
        if once is not None and not is_proved:
            with self.loan.taken():
                once.check()

    def carrying(self, graph: Data, part: Cut | None = None) -> Data:
        """The graph (or a part of it) with the rows of its nodes in the parameters that have one for each."""
        return _carrying(graph, self.twin.model, self.tables, self.call.forward, part) if self.tables else graph

    def recorded(self, graph: Data) -> Trace:
        """A pass on a graph, written down; the first one is not made again.

        Where there are no columns, nobody can tell what the model makes of them: that is known from the first pass.
        """
        if graph is self.example:
            return self.first
        with self.loan.taken():
            trace = record(self.call, self.layers, graph)
        return replace(trace, is_followed=trace.is_followed or self.first.is_followed)

    def check_fresh(self) -> None:
        """Refuse if the model has changed since."""
        what = self._mark.changed(self.user_model)
        if what:
            raise _stale(what)


def _stale(what: str) -> StaleQuestionError:
    return StaleQuestionError(
        f"The model has changed since the question was asked: {what}. Ask again: ew.Question(model, data, …)."
    )


def _on_device(model: nn.Module, device: Any) -> nn.Module:
    """The model itself, or a copy of it on another device."""
    if device is None:
        return model
    try:
        place = torch.device(device)
        if any(t.device != place for t in [*model.parameters(), *model.buffers()]):
            return _copied(model).to(place)
        return model
    except (RuntimeError, AssertionError, TypeError, ValueError, OverflowError) as error:
        raise SettingError(
            f"`device` must be one that is available here, got {shown(device)} ({error}). Leave it out, or use device='cpu'."
        ) from error


def _copied(model: nn.Module) -> nn.Module:
    """A copy that shares no memory once it is moved; ours takes a fifth of the time of Python's."""
    twin = make_twin(model)
    return copy.deepcopy(model) if twin.borrowed else twin.model


def on_device(graphs: list[Data], device: Any) -> list[Data]:
    """The graphs, or copies of them on another device; the user's stay where they are."""
    if device is None:
        return graphs
    try:
        return [copy.copy(graph).to(torch.device(device)) for graph in graphs]
    except (RuntimeError, AssertionError, TypeError, ValueError, OverflowError) as error:
        raise SettingError(
            f"`device` must be one that is available here, got {shown(device)} ({error}). Leave it out, or use device='cpu'."
        ) from error


class EdgeCount:
    """An `edge_index` with torch's count of changes in place: it does not see edits through `.data`, and costs nothing."""

    def __init__(self, edge_index: Tensor) -> None:
        self._seen, self._version = edge_index, _version(edge_index)

    def is_same(self, edge_index: Any) -> bool:
        """Whether this is the very tensor, and torch has counted no change."""
        return edge_index is self._seen and _version(edge_index) == self._version


def _version(tensor: Tensor) -> int:
    """Torch's count of changes in place; tensors of inference mode have none."""
    return 0 if tensor.is_inference() else tensor._version


class DataMark:
    """What the data of a question was: the tensors of some graphs, or of the cut of one, compared by content.

    A question that is not `held` answers once, so that nothing of its data is kept.
    """

    def __init__(self, graphs: list[Any], cut: Cut | None = None, *, held: bool = True) -> None:
        self._held = held
        if not held:
            return
        self._photographer = Photographer(CodeReach([]))
        self._cut = None if cut is None or cut.is_whole else cut
        self._edges = EdgeCount(graphs[0].edge_index) if self._cut is not None else None
        watched = [_watched(graph) for graph in graphs]
        self._is_long = len(graphs) > 1 and sum(map(_nbytes, watched)) > MOST_KEPT
        self._number = len(graphs)
        self._joined = None if len(graphs) == 1 or self._is_long else JoinedTensors.of(watched)
        self._seen: list[dict[str, Any]] = []
        """The attributes of each graph, unless those of all graphs are kept together."""
        if self._joined is None:
            every = zip(graphs, watched, strict=True)
            self._seen = [{key: self._kept(graph, key, value) for key, value in some} for graph, some in every]

    def changed(self, graphs: list[Any]) -> str:
        """The name of an attribute that is another one now; empty if all are the same."""
        assert self._held, "a question that is not held is never asked again"
        if len(graphs) != self._number:
            return "the number of graphs"
        if self._joined is not None and self._joined.is_same(JoinedTensors.of([_watched(graph) for graph in graphs])):
            return ""
        for graph, seen in zip(graphs, self._seen if self._joined is None else self._joined.of_each(), strict=True):
            now = dict(_watched(graph))
            if now.keys() != seen.keys():
                return "data." + sorted(now.keys() ^ seen.keys())[0]
            for key, before in seen.items():
                if not self._is_same(before, graph, key, now[key]):
                    return f"data.{key}"
        return ""

    def _kept(self, graph: Data, key: str, value: Any) -> Any:
        """A copy of what is compared later; a checksum where a copy would be too large."""
        if not isinstance(value, Tensor):
            return self._photographer.frozen(value)
        part = self._gathered(key)  # the cut has its own copy already
        part = self._part(graph, key, value) if part is None else part
        if part.layout == torch.strided and (self._is_long or part.numel() >= _LARGE):
            return _checksum(part)
        return part.detach().clone() if part is value else part.detach()

    def _gathered(self, key: str) -> Tensor | None:
        """What the cut took of an attribute of nodes or edges, if it did."""
        if self._cut is None or key == "edge_index" or not isinstance(self._cut.data.get(key), Tensor):
            return None
        is_part = self._cut.data.is_node_attr(key) or self._cut.data.is_edge_attr(key)
        return self._cut.data[key] if is_part else None

    def _is_same(self, before: Any, graph: Data, key: str, value: Any) -> bool:
        if not isinstance(value, Tensor):
            return same(before, value, self._photographer.reach)
        if key == "edge_index" and not self._has_same_columns(value):
            return False
        part = self._part(graph, key, value)
        if isinstance(before, Tensor):
            return same_tensor(before, part)
        return part.layout == torch.strided and before == _checksum(part)

    def _has_same_columns(self, edge_index: Tensor) -> bool:
        """Whether no column has come to the cut; a very large graph is looked through only if torch has counted a change."""
        if self._cut is None or self._edges is None:
            return True
        is_counted = edge_index.numel() > _LOOKED_THROUGH and self._edges.is_same(edge_index)
        return is_counted or self._cut.has_all(plain(edge_index))

    def _part(self, graph: Data, key: str, value: Tensor) -> Tensor:
        """What of a tensor belongs to the cut."""
        cut = self._cut
        if cut is None or cut.node_id is None or cut.edge_id is None or value.layout != torch.strided:
            return value
        if key == "edge_index":
            return value.index_select(1, cut.edge_id.to(value.device))
        if graph.is_node_attr(key) and len(value) == cut.num_nodes:
            return value.index_select(0, cut.node_id.to(value.device))
        if graph.is_edge_attr(key) and len(value) == cut.num_edges:
            return value.index_select(0, cut.edge_id.to(value.device))
        return value


def _watched(graph: Data) -> list[tuple[str, Any]]:
    """The attributes whose contents are compared."""
    return list(graph.to_dict().items())


def _nbytes(watched: list[tuple[str, Any]]) -> int:
    """Of all tensors that are watched."""
    return sum(value.nbytes for _, value in watched if isinstance(value, Tensor))


def _checksum(tensor: Tensor) -> tuple[Any, ...]:
    """Numbers that change with the contents, for tensors that are too large to be copied."""
    return (tuple(tensor.shape), str(tensor.dtype), *bit_sums(tensor))

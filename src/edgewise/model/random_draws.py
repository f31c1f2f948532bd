"""Whether random numbers that a pass draws with torch can reach its output; seen operation by operation, in this thread alone.

No generator is read, compared or set back: they belong to the whole process, and other threads draw from them meanwhile.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from edgewise.model.global_state import ThreadState
from edgewise.torch_internals import TorchDispatchMode, schema_of, storage_key
from edgewise.trees import tree_leaves

_OFF = {"train": False, "training": False, "dropout_p": 0.0, "dropout": 0.0}
"""Arguments that say that nothing is drawn, such as `training=False` of a leaky unit with a random slope."""


_NAMES = (
    "size dim ndimension stride numel nelement element_size storage_offset get_device type __len__ __hash__ dense_dim "
    "sparse_dim dim_order has_names result_type can_cast storage_type register_hook register_post_accumulate_grad_hook "
    "__dlpack_device__ _is_view _dimI _dimV"
)
_ABOUT = frozenset(_NAMES.split())
"""Functions that give what is known of a tensor without its numbers; so do attributes, and those named is_…."""
_CALL_BACK = frozenset(("apply_", "map_", "map2_", "__deepcopy__", "set_"))
"""Functions that give a tensor, and in which its numbers pass through Python or through memory that nobody follows."""


class _DrawMode(TorchDispatchMode):
    """Notices operations that draw random numbers."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap the method below so that it costs ten times as much

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[str] = []
        self._known: dict[Any, bool] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.draws(func, args, kwargs or {}):
            self.operations.append(str(func))
        return func(*args, **(kwargs or {}))

    def draws(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Whether an operation draws, from whatever generator."""
        may = self._known.get(func)
        if may is None:
            may = self._known[func] = torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
        return may and not _is_off(func, args, kwargs)


def _is_off(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an argument says that nothing is drawn."""
    arguments = schema_of(func).arguments
    given = {one.name: one.default_value for one in arguments if one.name in _OFF}
    given |= {one.name: value for one, value in zip(arguments, args, strict=False)} | kwargs
    return any(name in given and given[name] == off for name, off in _OFF.items())


class _Taint(_DrawMode):
    """Follows what was drawn from memory to memory; `escaped` if numbers of it left torch, or decide about a size.

    What is done with them there cannot be followed, and may be done rarely.
    """

    def __init__(self, is_random: Callable[[int], bool]) -> None:
        super().__init__()
        self.escaped = False
        self._is_random, self._count = is_random, 0
        self._drawn: dict[int, Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_tainted = any(map(self.is_tainted, tree_leaves((args, kwargs))))
        if self.draws(func, args, kwargs):
            is_tainted = self._is_random(self._count) or is_tainted
            self._count += 1
        self.escaped = self.escaped or (is_tainted and self._sizes(func, args, kwargs))
        result = func(*args, **kwargs)
        if is_tainted:
            self._note(result)
        return result

    def _sizes(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Whether numbers that were drawn decide how large the result is."""
        if torch.Tag.dynamic_output_shape not in getattr(func, "tags", ()):
            return False
        of = tree_leaves((args[1:], kwargs))  # a mask, or numbers of rows
        if str(func).startswith("aten.index."):
            return any(self.is_tainted(one) and one.dtype in (torch.bool, torch.uint8) for one in of)
        if str(func).startswith("aten.masked_select"):
            return any(map(self.is_tainted, of))
        return True

    def _note(self, result: Any) -> None:
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.escaped = self.escaped or not made
        self._drawn.update((_memory(tensor), tensor) for tensor in made)  # kept alive: its memory is given to no other

    def is_tainted(self, value: Any) -> bool:
        """Whether a tensor lies in memory into which something drawn was written."""
        return isinstance(value, Tensor) and _memory(value) in self._drawn


class _Departures(TorchFunctionMode):
    """Notices functions that take drawn numbers out of torch without an operation: `tolist`, `numpy`, `str`, a storage."""

    def __init__(self, taint: _Taint) -> None:
        super().__init__()
        self._taint = taint

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self._taint.escaped and _leaves(getattr(func, "__name__", ""), result):
            self._taint.escaped = any(map(self._taint.is_tainted, tree_leaves((args, kwargs or {}))))
        return result


def _leaves(name: str, result: Any) -> bool:
    """Whether a function of torch gives something besides tensors that may hold numbers of one."""
    if name in _CALL_BACK:
        return True
    if name == "__get__":
        return isinstance(result, dict)  # the addresses of an array
    if name in _ABOUT or name.startswith("is_"):
        return False
    return any(not (leaf is None or isinstance(leaf, Tensor)) for leaf in tree_leaves(result))


def _memory(tensor: Tensor) -> int:
    parts = tensor if tensor.layout == torch.strided else tensor._values() if tensor.is_sparse else None
    return id(tensor) if parts is None else storage_key(parts)


class _Results(_DrawMode):
    """Keeps what was drawn from generators of the model's own; None for other draws."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[list[Tensor] | None] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.draws(func, args, kwargs or {}):
            self.results.append(None if (kwargs or {}).get("generator") is None else _copies(result))
        return result


def _copies(result: Any) -> list[Tensor]:
    return [leaf.clone() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


def run_seen(run: Callable[[], Tensor]) -> tuple[Tensor, list[str]]:
    """What `run` gives, and the operations of torch that drew random numbers.

    >>> run_seen(lambda: torch.rand(3) * 0)
    (tensor([0., 0., 0.]), ['aten.rand.default'])
    """
    mode = _DrawMode()
    return _under(mode, run), mode.operations


def reaches_output(run: Callable[[], Tensor]) -> bool:
    """Whether what is drawn can reach what `run` gives, or leaves torch on the way: as a number, an array, text or a size.

    Draws of a generator that `run` starts anew each time are the same in every run, and no matter.

    >>> x = torch.ones(3)
    >>> reaches_output(lambda: x + 1e-9 * torch.rand(3)), reaches_output(lambda: (torch.rand(3), x + 1)[1])
    (True, False)
    """
    first, second = _Results(), _Results()
    _under(first, run)
    _under(second, run)
    pairs = zip(first.results, second.results, strict=False)
    repeated = [a is not None and b is not None and all(map(torch.equal, a, b)) for a, b in pairs]
    taint = _Taint(lambda number: number >= len(repeated) or not repeated[number])
    output = _under(taint, run, _Departures(taint))
    return taint.escaped or taint.is_tainted(output)


def _under(mode: TorchDispatchMode, run: Callable[[], Tensor], *others: TorchFunctionMode) -> Tensor:
    before = ThreadState()
    try:
        with ExitStack() as modes:
            modes.enter_context(mode)
            for one in others:
                modes.enter_context(one)
            return run()
    finally:
        before.put_back()

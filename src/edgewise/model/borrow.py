"""Borrow the user's model: eval mode, no caches; everything given back, also after an exception.

What a forward pass may leave behind in a module (a cached adjacency, a stored attention) lives in its `__dict__`, so the
`__dict__` is photographed on entry and put back on exit, value by value and by identity.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import ModelError
from edgewise.model.forks import renewed_in_forks
from edgewise.model.module_tree import switches_itself

_CONTAINERS = (dict, list, set)
_lent: "dict[int, _Loan]" = {}
"""By the identity of each module of a borrowed model: the loan that is open."""


def ours(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A hook that lets other threads pass which use a borrowed model meanwhile; the loan notices them, and is refused.

    Who they are cannot be told: the user's own, which must get their predictions, or a forward pass that runs layers in threads
    of its own, whose messages would be missed.
    """

    def mine(module: nn.Module, *arguments: Any, **options: Any) -> Any:
        loan = _lent.get(id(module))
        if loan is None or loan.thread == get_ident():
            return hook(module, *arguments, **options)
        loan.disturbed = True
        return None

    return mine


def _photograph(module: nn.Module) -> tuple[dict[str, Any], dict[str, Any], dict[str, Tensor]]:
    values = dict(module.__dict__)
    contents = {key: value.copy() for key, value in values.items() if isinstance(value, _CONTAINERS)}
    buffers = {name: buffer.clone() for name, buffer in module._buffers.items() if buffer is not None}
    return values, contents, buffers


def _equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same numbers, NaN included."""
    if torch.equal(a, b) or a.shape != b.shape or not a.is_floating_point():
        return torch.equal(a, b)
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _refill(container: Any, content: Any) -> None:
    container.clear()
    container.extend(content) if isinstance(container, list) else container.update(content)


def _same(container: Any, content: Any) -> bool:
    if len(container) != len(content):
        return False
    if isinstance(container, dict):
        pairs = zip(container.items(), content.items(), strict=True)
        return all(a is c and b is d for (a, b), (c, d) in pairs)
    return all(a is b for a, b in zip(container, content, strict=True))


def _restore(module: nn.Module, photo: tuple[dict[str, Any], dict[str, Any], dict[str, Tensor]]) -> None:
    values, contents, buffers = photo
    for key in module.__dict__.keys() - values.keys():
        del module.__dict__[key]
    for key, value in values.items():
        if module.__dict__.get(key, module) is not value:
            module.__dict__[key] = value
    for key, content in contents.items():
        if not _same(values[key], content):
            _refill(values[key], content)
    for name, before in buffers.items():
        if not _equal(module._buffers[name], before):  # type: ignore[arg-type]
            module._buffers[name].copy_(before)  # type: ignore[union-attr]


def _refuse_switches(model: nn.Module) -> None:
    if model.training:
        raise ModelError(
            "`model` must be in eval mode, got a model in training whose eval() is overridden and changes parameters or cannot "
            "be tried on a copy. Call model.eval() first, so that the model is explained as you use it."
        )


def _drop_cache(module: nn.Module) -> None:
    state = module.__dict__
    if state.get("cached") is True:  # a cache belongs to the user's graph; our copies must not read or write it
        state["cached"] = False
        for key in [key for key in state if key.startswith("_cached")]:
            state[key] = None


class _Loan:
    """A model as it was when it was borrowed; both steps may be repeated, and broken off anywhere."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(model.modules())
        self._photos = [_photograph(module) for module in self._modules]
        self._required = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._outer = _lent.get(id(model))  # of the same thread: there is a lock
        self.thread, self.disturbed = get_ident(), False

    def prepare(self) -> None:
        """Eval mode and no caches; parameters still take gradients, as other threads expect."""
        _lent.update((id(module), self) for module in self._modules)
        switches = any(map(switches_itself, self._modules))
        if switches:  # its code is not run on the user's own parameters
            _refuse_switches(self._modules[0])
        for module in self._modules:
            if not switches:
                module.__dict__["training"] = False
            _drop_cache(module)

    def give_back(self) -> None:
        """Everything as it was."""
        for parameter in self._required:
            parameter.requires_grad_(True)
        with torch.no_grad():
            for module, photo in zip(self._modules, self._photos, strict=True):
                _restore(module, photo)
        for module in self._modules:
            _lent.pop(id(module), None)
            if self._outer is not None:
                _lent[id(module)] = self._outer

    def refuse_company(self) -> None:
        """Refuse what was found while another thread ran the model."""
        if self.disturbed:
            raise ModelError(
                "Another thread ran the model while it was explained, and this model cannot be copied: its forward reaches "
                "past a copy to the model itself. Pass forward=lambda model, data: ... that uses the model which it is given, "
                "explain copy.deepcopy(model), or let nobody else use the model meanwhile."
            )


def give_back_orphans() -> None:
    """In a forked process: take back what was lent to threads that are not there; hooks that they left go with it."""
    while orphans := {id(loan): loan for loan in _lent.values() if loan.thread != get_ident()}:
        for loan in orphans.values():
            loan.give_back()


renewed_in_forks(give_back_orphans)


@contextmanager
def borrowed(model: nn.Module) -> Iterator[nn.Module]:
    """The model in eval mode, to run and to differentiate with respect to edge weights; no trace is left of it.

    It is given back twice: an interrupt in the first attempt leaves the second.
    """
    loan = _Loan(model)
    with torch.inference_mode(mode=False), torch.enable_grad():
        try:
            loan.prepare()
            yield model
            loan.refuse_company()
        finally:
            try:
                loan.give_back()
            finally:
                loan.give_back()

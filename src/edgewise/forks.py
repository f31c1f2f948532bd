"""Processes that are forked while other threads explain: no lock is inherited whose holder is not there to release it.

A fork waits a moment until every model that another thread runs has ended its pass. One that takes longer is torn: in the child
its question says so and wants to be asked again; in the parent nothing has happened. All other locks of ours are made anew in
the child.
"""

import os
import sys
import time
import weakref
from collections.abc import Callable
from functools import cached_property
from threading import Event, RLock
from typing import Protocol

_PATIENCE = 5.0
"""Seconds that a fork waits at most."""


class _Held(Protocol):
    def held_still(self, seconds: float) -> bool: ...

    def let_go(self) -> None: ...

    def tear(self) -> None: ...


_kept: "weakref.WeakValueDictionary[int, _Held]" = weakref.WeakValueDictionary()
_still: list[_Held] = []
_gate = Event()
_gate.set()
_renewals: list[Callable[[], None]] = []


def kept_over_forks(held: _Held) -> None:
    """Hold something still while this process is forked, as long as it lives."""
    _kept[id(held)] = held


def renewed_in_forks(renew: Callable[[], None]) -> None:
    """Call a function in every process that is forked from this one, before anything else happens there."""
    _renewals.append(renew)


def let_fork() -> None:
    """Wait while another thread is about to fork; for a thread that holds nothing yet. A lock alone would not be fair."""
    if not _gate.is_set():
        _gate.wait(_PATIENCE)


def _all_kept() -> list[_Held]:
    return [held for held in (reference() for reference in _kept.valuerefs()) if held is not None]


def _before() -> None:
    _gate.clear()
    end = time.monotonic() + _PATIENCE
    for held in _all_kept():
        if held.held_still(max(end - time.monotonic(), 0.0)):
            _still.append(held)


def _in_parent() -> None:
    while _still:
        _still.pop().let_go()
    _gate.set()


def _in_child() -> None:
    global _gate
    _gate = Event()  # the old one has a lock, too
    still = {id(held) for held in _still}
    _in_parent()
    for held in _all_kept():
        if id(held) not in still:
            held.tear()
    for renew in _renewals:
        renew()
    _renew_properties()


def _renew_properties() -> None:
    """Python 3.11 computes the value of a cached property under a lock that all objects of the class share."""
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "edgewise"]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    for found in (part for kind in classes for part in vars(kind).values() if isinstance(part, cached_property)):
        if hasattr(found, "lock"):
            found.lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)

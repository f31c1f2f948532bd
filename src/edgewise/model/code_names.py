"""What code mentions: the names that it reads and rebinds, and which of a model's methods can be reached from `forward`."""

import dis
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from torch import nn

_STORE = dis.opmap["STORE_ATTR"]
_LOOKS_UP = frozenset(
    ("getattr", "vars", "dir", "__dict__", "attrgetter", "methodcaller", "asdict", "__getattribute__")
)
_IMPORTS = frozenset(("import_module", "__import__"))
_EVALUATES = frozenset(("globals", "eval", "exec", *_IMPORTS))


@dataclass(frozen=True)
class Mentions:
    """The names in a piece of code and in the code inside it."""

    globals: frozenset[str]
    names: frozenset[str]
    """Of attributes, and strings that could be names of some."""
    imports: frozenset[str]
    rebound: frozenset[str]
    """Globals and outer variables that the code itself sets."""
    texts: frozenset[str]
    """All strings that stand in it."""

    @property
    def looks_up(self) -> bool:
        """Whether names may be made while it runs."""
        return bool((_LOOKS_UP | _EVALUATES) & (self.globals | self.names))

    @property
    def imports_by_name(self) -> bool:
        """Whether modules may be read by a name: `import_module(name)`, `sys.modules[name]`."""
        named = self.globals | self.names
        return bool(_IMPORTS & named) or ("modules" in named and "sys" in self.globals | self.imports)

    @property
    def evaluates(self) -> bool:
        """Whether any global may be read."""
        return bool(_EVALUATES & (self.globals | self.names))


@lru_cache(maxsize=2**16)  # more than the functions of a program: going round in a smaller one would find nothing
def mentions(code: CodeType) -> Mentions:
    """What code mentions, the functions inside it included.

    >>> found = mentions((lambda model, data: model(SCALE * data.x)).__code__)
    >>> sorted(found.globals), sorted(found.names)
    (['SCALE'], ['x'])
    """
    read: set[str] = set()
    names: set[str] = set()
    imports: set[str] = set()
    rebound: set[str] = set()
    texts: set[str] = set()
    for part in codes(code):
        texts.update(text for text in part.co_consts if isinstance(text, str))
        for step in dis.get_instructions(part):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                read.add(step.argval)
            elif step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
                step.opname == "STORE_DEREF" and step.argval in part.co_freevars
            ):
                rebound.add(step.argval)
            elif step.opname == "IMPORT_NAME":
                imports.add(step.argval)
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM", "LOAD_SUPER_ATTR"):
                names.add(step.argval)
    names.update(filter(str.isidentifier, texts))
    return Mentions(frozenset(read), frozenset(names), frozenset(imports), frozenset(rebound), frozenset(texts))


def imported(name: str, package: Any) -> Iterator[tuple[str, Any]]:
    """The modules that `import name` inside a function means, as far as they have been imported."""
    for full in (name, f"{package}.{name}" if package else name):
        if full in sys.modules:
            yield full, sys.modules[full]


def same_code(before: CodeType, now: CodeType) -> bool:
    """Whether two pieces of code do the same; the file and the lines where they stand do not count."""
    if before is now:
        return True
    if any(getattr(before, key) != getattr(now, key) for key in _OF_CODE):
        return False
    pairs = list(zip(before.co_consts, now.co_consts, strict=False))
    return len(before.co_consts) == len(now.co_consts) and all(_same_constant(*pair) for pair in pairs)


_OF_CODE = (
    *("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags", "co_exceptiontable"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount"),
)


def _same_constant(before: Any, now: Any) -> bool:
    if isinstance(before, CodeType) and isinstance(now, CodeType):
        return same_code(before, now)
    return type(before) is type(now) and repr(before) == repr(now)  # 0.0 is not -0.0


def codes(code: CodeType | None) -> Iterator[CodeType]:
    """The code of a function and of the functions inside it."""
    if code is not None:
        yield code
        for part in code.co_consts:
            yield from codes(part if isinstance(part, CodeType) else None)


@lru_cache(maxsize=4096)
def assigned_by_forward(kind: type) -> frozenset[str]:
    """Names of attributes that `forward` assigns, itself or in methods of the class whose names it mentions.

    >>> from torch_geometric.nn import TransformerConv
    >>> "_alpha" in assigned_by_forward(TransformerConv), "heads" in assigned_by_forward(TransformerConv)
    (True, False)
    """
    own = [vars(part) for part in kind.__mro__ if part not in nn.Module.__mro__]
    waiting, seen = ["forward"], {"forward"}
    assigned: set[str] = set()
    while waiting:
        name = waiting.pop()
        for methods in own:  # every version: one may call that of its parent
            method = methods.get(name)
            for code in codes(method.__code__ if isinstance(method, FunctionType) else None):
                if _STORE in code.co_code[::2]:  # else there is nothing to find, and reading it takes a while
                    assigned.update(step.argval for step in dis.get_instructions(code) if step.opcode == _STORE)
                waiting.extend(set(code.co_names) - seen)
                seen.update(code.co_names)
    return frozenset(assigned)

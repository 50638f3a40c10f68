"""A state that records which of its keys a function reads. Pure.

The function receives an object of the state's own type: a model or dataclass whose class is replaced by a subclass without further fields,
or a dict. Both record reads only within `RecordedReads`, and change nothing that the function computes: `isinstance`, `==`, `__class__`
and `repr` answer as before. Only `type` would not, so a state or a function that asks for it is left alone. Reads by C code, for example `model_dump`, count as reads of all keys.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

ALL = "*"  # not a key: keys have no asterisk
_reads: ContextVar[dict[str, None] | None] = ContextVar("reads_of_state", default=None)


class RecordedReads:
    """Record reads of observed states in the order in which they happen. Names that are no keys are among them, and ALL."""

    __slots__ = ("_token",)

    def __enter__(self) -> dict[str, None]:
        reads: dict[str, None] = {}
        self._token = _reads.set(reads)
        return reads

    def __exit__(self, *_: object) -> None:
        _reads.reset(self._token)


def observed(state: Any) -> Any:
    """Return the state as an observed object: itself, or a dict with the same content. None if its type
    allows no subclass."""
    if isinstance(state, dict):
        return _ObservedDict(state)
    try:
        object.__setattr__(state, "__class__", _observed_class(state.__class__))
    except (TypeError, AttributeError):
        return None
    return state


def _record(name: object) -> None:
    reads = _reads.get()
    if reads is not None and isinstance(name, str):
        reads.setdefault(name)


class _WithoutHook:
    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Nothing: the hook of the author's class is for the author's subclasses."""


@lru_cache(maxsize=256)
def _observed_class(base: type) -> type:
    """Raises TypeError for a class whose methods ask for the exact type of an object."""
    own = [each for kind in base.__mro__ if _is_of_author(kind) for each in vars(kind).values()]
    if any(asks_for_type(each) for each in own if isinstance(each, Hashable)):
        raise TypeError("the observed state is of another type")
    read: Any = base.__getattribute__
    reduce: Any = base.__reduce_ex__

    def read_recorded(self: Any, name: str) -> Any:
        _record(ALL if name == "__dict__" else name)
        return read(self, name)

    def reduce_unobserved(self: Any, protocol: Any) -> Any:
        """As of the author's class: a copy is not observed."""
        reduced = reduce(self, protocol)
        if isinstance(reduced, tuple) and len(reduced) > 1 and reduced[1][:1] == (type(self),):
            return (reduced[0], (self.__class__, *reduced[1][1:]), *reduced[2:])
        return reduced

    names = {"__slots__": (), "__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__,
             "__class__": property(lambda _: base), "__getattribute__": read_recorded, "__reduce_ex__": reduce_unobserved}  # fmt: skip
    # an object changes its class only to one whose first base is its own, and a hook needs a base before that
    has_hook = any("__init_subclass__" in vars(kind) for kind in base.__mro__[:-1])
    bases = (_WithoutHook, base) if has_hook else (base,)
    # not type(base)(...): the metaclass of a model would collect its fields again
    return type.__new__(type(base), base.__name__, bases, names)


def _is_of_author(kind: type) -> bool:
    return kind.__module__.partition(".")[0] not in ("builtins", "pydantic", "typing", "abc")


@lru_cache(maxsize=1024)
def asks_for_type(function: Any) -> bool:
    """Whether a function, or one that it calls by its name, uses `type`, which would tell an observed state from the state."""
    todo, seen = [function], set[CodeType]()
    while todo:
        given = todo.pop()
        given = getattr(given, "__wrapped__", None) or getattr(given, "fget", None) or getattr(given, "__func__", given)
        code = given if isinstance(given, CodeType) else getattr(given, "__code__", None)
        if not isinstance(code, CodeType) or code in seen:
            continue
        seen.add(code)
        of_frozen_dataclass = code.co_filename == "<string>" and code.co_name in ("__setattr__", "__delattr__")
        if "type" in code.co_names and not of_frozen_dataclass:
            return True
        known = getattr(given, "__globals__", {})
        todo += [each for each in code.co_consts if isinstance(each, CodeType)]
        todo += [known[name] for name in code.co_names if isinstance(known.get(name), FunctionType)]
    return False


class _ObservedDict(dict[str, Any]):
    """A dict that records look-ups by key, and an iteration as a read of all keys."""

    __slots__ = ()
    __class__ = property(lambda _: dict)

    def __getitem__(self, key: str) -> Any:
        _record(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        _record(key)
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        _record(key)
        return super().get(key, default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        _record(key)
        return super().setdefault(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        _record(key)
        return super().pop(key, *default)

    def __len__(self) -> int:
        _record(ALL)
        return super().__len__()

    def __iter__(self) -> Iterator[str]:
        _record(ALL)
        return super().__iter__()

    def __reversed__(self) -> Iterator[str]:
        _record(ALL)
        return super().__reversed__()

    def __eq__(self, other: object) -> bool:
        _record(ALL)
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        _record(ALL)
        return super().__ne__(other)

    __hash__ = None

    def __or__(self, other: Any) -> Any:
        _record(ALL)
        return super().__or__(other)

    def __ror__(self, other: Any) -> Any:
        _record(ALL)
        return super().__ror__(other)

    def __repr__(self) -> str:
        _record(ALL)
        return super().__repr__()

    def keys(self) -> Any:
        _record(ALL)
        return super().keys()

    def values(self) -> Any:
        _record(ALL)
        return super().values()

    def items(self) -> Any:
        _record(ALL)
        return super().items()

    def copy(self) -> dict[str, Any]:
        _record(ALL)
        return super().copy()

    def popitem(self) -> Any:
        _record(ALL)
        return super().popitem()

    def __reduce_ex__(self, _: Any) -> Any:
        return dict, (dict(self),)


_ObservedDict.__name__ = _ObservedDict.__qualname__ = "dict"  # which messages of errors contain

"""A standard library TypedDict as pydantic takes it.

Before Python 3.12 pydantic refuses `typing.TypedDict`, which cannot say which of
its inherited keys are required. A user should not have to know that.
"""

from __future__ import annotations

import sys
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict


def usable(kind: Any) -> Any:
    """`kind`, with every TypedDict in it, however deep, replaced by its twin of typing_extensions where need be."""
    if sys.version_info >= (3, 12):
        return kind
    if is_typeddict(kind) and type(kind).__module__ == "typing":
        return _typing_copy(kind)
    arguments = get_args(kind)
    replaced = tuple(usable(argument) for argument in arguments)
    if all(new is old for new, old in zip(replaced, arguments, strict=True)):
        return kind
    origin = get_origin(kind)
    return reduce(or_, replaced) if origin in (Union, UnionType) else origin[replaced]


def _typing_copy(kind: Any) -> Any:
    import typing_extensions  # only where it is needed, and there pydantic has brought it along

    hints = {
        key: _typing_copy_hint(hint, key in kind.__required_keys__)
        for key, hint in get_type_hints(kind, include_extras=True).items()
    }
    made = typing_extensions.TypedDict(kind.__name__, hints)  # type: ignore[misc]
    copy: Any = made  # whose attributes no type checker knows
    copy.__module__ = kind.__module__
    if hasattr(kind, "__pydantic_config__"):
        copy.__pydantic_config__ = kind.__pydantic_config__
    return copy


def _typing_copy_hint(hint: Any, is_required: bool) -> Any:
    """A key's type, Annotated included: it may hold constraints."""
    import typing_extensions

    if get_origin(hint) in (Required, NotRequired):  # which __required_keys__ misses where annotations are strings
        return _typing_copy_hint(get_args(hint)[0], get_origin(hint) is Required)
    return usable(hint) if is_required else typing_extensions.NotRequired[usable(hint)]

"""Convert TypedDicts of the standard library to a form that pydantic accepts.

Before Python 3.12, pydantic rejects `typing.TypedDict`, because it does not record which inherited keys are required.
"""

from __future__ import annotations

import sys
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict


def usable(kind: Any) -> Any:
    """Return a type in which every TypedDict is replaced by one of typing_extensions, if pydantic requires that."""
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
    import typing_extensions  # a dependency of pydantic

    hints = {
        key: _typing_copy_hint(hint, key in kind.__required_keys__)
        for key, hint in get_type_hints(kind, include_extras=True).items()
    }
    typed_dict = typing_extensions.TypedDict(kind.__name__, hints)  # type: ignore[misc]
    copy: Any = typed_dict  # type checkers do not know its attributes
    copy.__module__ = kind.__module__
    if hasattr(kind, "__pydantic_config__"):
        copy.__pydantic_config__ = kind.__pydantic_config__
    return copy


def _typing_copy_hint(hint: Any, is_required: bool) -> Any:
    """Return the type of a key, with its Annotated constraints."""
    import typing_extensions

    if get_origin(hint) in (Required, NotRequired):  # __required_keys__ misses these if annotations are strings
        return _typing_copy_hint(get_args(hint)[0], get_origin(hint) is Required)
    return usable(hint) if is_required else typing_extensions.NotRequired[usable(hint)]

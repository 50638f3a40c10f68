"""What a function must be like that somebody else calls: known before it is called, with a word about what to write."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from heliograph.errors import InvalidInput, Rejected, safe_repr


def check_function(function: Any, what: str, path: str, *given: str, least: int = 0, waits: bool = False) -> int:
    """How many of the arguments `given` (named for people) `function` is to be called with: all, or from `least` up.

    what: whose function this is, for messages. waits: an async function will do.
    Raises InvalidInput (`wrong_type`) for what cannot be called so, and for generators, which return nothing yet.
    """
    wanted = " or ".join(" and ".join(given[:n]) for n in range(least or len(given), len(given) + 1))
    if not callable(function):
        raise InvalidInput(f"{what} is a function of {wanted}, not {safe_repr(function)}", code="wrong_type", path=path)
    if not waits and _is(inspect.iscoroutinefunction, function):
        raise InvalidInput(f"{what} is a plain function: it answers at once and waits for nothing; write def, not async "
                           "def, and leave what takes time to an agent", code="wrong_type", path=path)  # fmt: skip
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise InvalidInput(f"{what} is a generator: return the value, or a list of the values, instead of yielding",
                           code="wrong_type", path=path)  # fmt: skip
    count, problem = _count(function, least or len(given), len(given))
    if problem:
        raise InvalidInput(f"{what} is called with {wanted}, and it {problem}", code="wrong_type", path=path)
    return count


@contextmanager
def naming(what: str, path: str) -> Iterator[None]:
    """Name, in whatever is refused inside, the argument that it is about."""
    try:
        yield
    except (InvalidInput, Rejected) as error:
        raise type(error)(f"{what}: {error.message}", code=error.code, path=path, hint=error.hint) from None


def _count(function: Any, least: int, given: int) -> tuple[int, str]:
    """How many arguments to call it with, and what is wrong with that."""
    try:
        # where there is a choice, what a decorator wraps tells; otherwise the wrapper is what will be called
        parameters = inspect.signature(function, follow_wrapped=least < given).parameters.values()
    except (ValueError, TypeError):  # a builtin such as bool tells nothing
        return least, ""
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    fewest = sum(p.default is p.empty for p in by_position)
    most = math.inf if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(by_position)
    unnamed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    count = max(fewest, least)
    if unnamed:
        return count, f"takes {', '.join(unnamed)} by name only; give a default, or take the * out"
    if fewest > given:
        return count, f"needs {fewest} arguments; fill in the rest with defaults or functools.partial"
    return count, f"takes only {most}; add what is missing" if count > most else ""


def _is(kind: Any, function: Any) -> bool:
    """Whether a function, or an object through its __call__, is of a kind that `inspect` knows."""
    return bool(kind(function) or kind(getattr(function, "__call__", None)))  # noqa: B004  the method itself is looked at

"""Check the signatures of functions that authors pass in, before they are called."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, Rejected


def check_function(function: Any, what: str, path: str, *given: str, least: int = 0, waits: bool = False) -> int:
    """Return how many of the arguments `given` to pass to a function: all of them, or at least `least`.

    given: the arguments, as messages name them. what: the owner of the function, for messages. waits: async functions are allowed.
    Raises InvalidInput (`wrong_type`) for a function with other arguments, and for generators.
    """
    wanted = " or ".join(" and ".join(given[:n]) for n in range(least or len(given), len(given) + 1))
    if not callable(function):
        raise InvalidInput(
            f"{what} must be a function of {wanted}, not {safe_repr(function)}", code="wrong_type", path=path
        )
    if not waits and _is(inspect.iscoroutinefunction, function):
        raise InvalidInput(f"{what} must be a plain function that returns without waiting; write def, not async def, and put "
                           "slow work into an agent", code="wrong_type", path=path)  # fmt: skip
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise InvalidInput(f"{what} is a generator: return the value, or a list of the values, instead of yielding",
                           code="wrong_type", path=path)  # fmt: skip
    count, problem = _count(function, least or len(given), len(given))
    if problem:
        raise InvalidInput(f"{what} is called with {wanted}, but it {problem}", code="wrong_type", path=path)
    return count


@contextmanager
def naming(what: str, path: str) -> Iterator[None]:
    """Prefix the message of an InvalidInput or Rejected that is raised inside with the argument's name."""
    try:
        yield
    except (InvalidInput, Rejected) as error:
        raise type(error)(f"{what}: {error.message}", code=error.code, path=path, hint=error.hint) from None


def _count(function: Any, least: int, given: int) -> tuple[int, str]:
    """Return the number of arguments to pass, and the problem with that, if any."""
    try:
        # if the count may vary, the function that a decorator wraps decides; otherwise the wrapper itself
        parameters = inspect.signature(function, follow_wrapped=least < given).parameters.values()
    except (ValueError, TypeError):  # a builtin such as bool has no signature
        return least, ""
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    fewest = sum(p.default is p.empty for p in by_position)
    most = math.inf if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(by_position)
    unnamed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    count = max(fewest, least)
    if unnamed:
        return count, f"takes {', '.join(unnamed)} by name only; give a default, or remove the *"
    if fewest > given:
        return count, f"needs {fewest} arguments; fill in the rest with defaults or functools.partial"
    return count, f"takes only {most}; add the missing parameters" if count > most else ""


def _is(kind: Any, function: Any) -> bool:
    """Whether the predicate `kind` of `inspect` holds for a function, or for the `__call__` of an object."""
    return bool(kind(function) or kind(getattr(function, "__call__", None)))  # noqa: B004  the method itself is inspected

"""Checks of the names of pools, where an application, a worker or a program gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heliograph.control.pool_names import DEFAULT_POOL, POOL_RULE, is_pool_name
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput


def check_pool(what: str, value: Any, path: str) -> str:
    """Check the name of a pool, and return it. Raises InvalidInput (`invalid_id`)."""
    if not is_pool_name(value):
        raise InvalidInput(f"{what} must be {POOL_RULE}, not {safe_repr(repr_of(value))}", code="invalid_id", path=path)
    return str(value)


def check_pools(given: Any) -> tuple[str, ...]:
    """The pools of a worker, each once, in order; the default pool for an empty list. Raises InvalidInput (`invalid_id`, `wrong_type`)."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInput(
            f"pools must be a list of names, not {safe_repr(repr_of(given))}", code="wrong_type", path="/pools"
        )
    return tuple(sorted({check_pool("a pool", each, "/pools") for each in given})) or (DEFAULT_POOL,)

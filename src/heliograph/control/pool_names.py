"""The names of pools: groups of workers that serve a turn or a tool call. Imports no validation library."""

from __future__ import annotations

import re
from typing import Any

DEFAULT_POOL = "default"  # of agents that name none, and of workers without --pool
POOL_RULE = "1 to 63 ASCII letters, digits, '_', '-' or '.'"

_NAME = re.compile("[A-Za-z0-9_.-]{1,63}")


def is_pool_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def queue_name(target: str, pool: str) -> str:
    """The queue of a pool for an application, as bells name it: `newsroom`, or `newsroom/gpu`."""
    return target if pool == DEFAULT_POOL else f"{target}/{pool}"

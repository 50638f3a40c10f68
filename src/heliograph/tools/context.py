"""What a tool's function may ask for: which call it carries out, and for whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One call of a tool. A function gets it by a parameter that is annotated with this type.

    idempotency_key: the same for every attempt of this call and for no other call; hand it to whatever must not happen
        twice. deps: what the application was given as `deps`.
    connection: of a transactional tool, the driver's connection (asyncpg) with a transaction open on it. What is done
        there is committed together with the tool's result; the tool neither commits nor rolls back.
    """

    run_id: str
    turn_id: str
    agent: str
    call_id: str
    idempotency_key: str
    deps: Any = None
    connection: Any = None

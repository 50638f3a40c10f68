"""What a tool's function may ask for: which call it carries out, and for whom."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from pydantic.errors import PydanticSchemaGenerationError

from heliograph.secrets import Resolver, Secret
from heliograph.tools.secrets import secret


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One call of a tool. A function gets it by a parameter that is annotated with this type.

    idempotency_key: the same for every attempt of this call, and for no other call of any project or application:
        `project/application/turn/call`. Pass it to every receiver that must not act twice. deps: what the application was given as `deps`.
    connection: of a transactional tool, the driver's connection (asyncpg) with a transaction open on it. What is done
        there is committed together with the tool's result; the tool neither commits nor rolls back.
    given_up: set as soon as nobody waits for the result any more: it took too long, or its turn was halted. An async
        function is cancelled then; a plain one is in a thread that nothing can interrupt, and looks here between its
        steps (`given_up.is_set()`), or sleeps by it (`given_up.wait(seconds)`).
    """

    run_id: str
    turn_id: str
    agent: str
    call_id: str
    idempotency_key: str
    deps: Any = None
    connection: Any = None
    is_abandoned: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    resolver: Resolver | None = field(default=None, repr=False)

    def secret(self, name: str) -> Secret:
        """A secret of the application. Raises SetupError (`no_secret`), InvalidInput."""
        return secret(name, self.resolver)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        # inside of another type it would be an argument, which a model makes up
        raise PydanticSchemaGenerationError("ToolContext is a parameter by itself, not a part of an argument")

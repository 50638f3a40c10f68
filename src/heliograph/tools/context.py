"""The context of a tool call, which a tool's function may take as a parameter."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Generic

from pydantic.errors import PydanticSchemaGenerationError

from heliograph.secrets import Resolver, Secret
from heliograph.tools.secrets import secret
from heliograph.type_variables import Deps_co


@dataclass(frozen=True, slots=True)
class ToolContext(Generic[Deps_co]):
    """One call of a tool. A function receives it through a parameter that is annotated with this type.

    idempotency_key: the same for every attempt of this call, and different for every other call of any project:
        `project/application/turn/call`. Pass it to every receiver that must not act twice.
    deps: the object of `Heliograph(deps=...)`; `ToolContext[Clients]` gives it a type.
    connection: for transactional tools, the asyncpg connection with an open transaction. Writes through it commit together
        with the tool's result; the tool neither commits nor rolls back.
    is_abandoned: set when the call timed out or its turn was halted. An async function is cancelled then. A plain function
        runs in a thread, which nothing can interrupt: it should check `is_abandoned.is_set()` between its steps, and
        sleep with `is_abandoned.wait(seconds)`.
    """

    run_id: str
    turn_id: str
    agent: str
    call_id: str
    idempotency_key: str
    deps: Deps_co = None  # type: ignore[assignment]  # an application without deps has None
    connection: Any = None
    is_abandoned: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    resolver: Resolver | None = field(default=None, repr=False)

    def secret(self, name: str) -> Secret:
        """Look up a secret of the application. Raises SetupError (`no_secret`), and InvalidInput for an invalid name."""
        return secret(name, self.resolver)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        # inside another type it would become an argument that the model fills in
        raise PydanticSchemaGenerationError(
            "ToolContext must be a parameter of its own, not a part of another argument"
        )

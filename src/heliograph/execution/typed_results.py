"""Return the result of a call as the type that its caller declared. The ledger has its JSON."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pydantic

from heliograph.codes import RESULT_SCHEMA
from heliograph.definitions.typed_dicts import usable
from heliograph.error_text import safe_repr
from heliograph.errors import ToolFailed
from heliograph.types import Json

_MESSAGE_MAX = 2000


async def typed_result(result: Coroutine[Any, Any, Json], tool: str, kind: Any) -> Any:
    """The result of a call as a `kind`, whose JSON Schema it matches. Raises ToolFailed (`result_schema`), and as the call does."""
    value = await result
    try:
        return pydantic.TypeAdapter(usable(kind)).validate_python(value)
    except pydantic.ValidationError as error:  # JSON Schema cannot express every rule of the type
        raise ToolFailed(safe_repr(f"the result of {tool} does not match its type: {error}", _MESSAGE_MAX), code=RESULT_SCHEMA,
                         tool=tool) from None  # fmt: skip

"""From what an agent's author calls a model to a harness that can be asked."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from heliograph.errors import SetupError
from heliograph.ports import Harness


def make_resolver(default_model: str | None) -> Callable[[Any], Harness]:
    """A function from a model (a harness, a pydantic-ai model, a name, or None for the default) to its harness.

    Each is made once. Raises SetupError (`no_model`, `unknown_model`).
    """
    made: dict[Any, Harness] = {}

    def resolve(model: Any) -> Harness:
        wanted = default_model if model is None else model
        if wanted is None:
            raise SetupError("no model: set HELIOGRAPH_MODEL, such as HELIOGRAPH_MODEL=openai-chat:gpt-5, or give the "
                             "agent a model", code="no_model")  # fmt: skip
        if hasattr(wanted, "stream") and hasattr(wanted, "model"):
            harness: Harness = wanted
            return harness
        key = wanted if isinstance(wanted, str) else id(wanted)
        if key not in made:
            made[key] = _pydantic_harness(wanted)
        return made[key]

    return resolve


def _pydantic_harness(model: Any) -> Harness:
    if find_spec("pydantic_ai") is None:
        raise SetupError(f"the model {model} needs pydantic-ai: pip install 'heliograph[models]', or a provider's extra "
                         "such as 'heliograph[openai]'", code="no_model_library")  # fmt: skip
    from heliograph.harness.pydantic import PydanticHarness

    return PydanticHarness(model)

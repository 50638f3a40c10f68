"""From what an agent's author calls a model to a harness that can be asked."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from heliograph.errors import SetupError
from heliograph.ports import Harness

if TYPE_CHECKING:
    from heliograph.harness.pydantic_model import PydanticHarness


class Harnesses:
    """From a model (a harness, a pydantic-ai model, a name, or None for the default) to its harness, made once each."""

    def __init__(self, default_model: str | None = None):
        self._default = default_model
        self._made: dict[Any, PydanticHarness] = {}

    def __call__(self, model: Any) -> Harness:
        """Raises SetupError (`no_model`, `unknown_model`, `no_model_library`)."""
        wanted = self._default if model is None else model
        if wanted is None:
            raise SetupError(
                "no model: set HELIOGRAPH_MODEL, such as HELIOGRAPH_MODEL=openai-chat:gpt-5, or give the agent a model",
                code="no_model",
            )
        if hasattr(wanted, "stream") and hasattr(wanted, "model"):
            harness: Harness = wanted
            return harness
        key = wanted if isinstance(wanted, str) else id(wanted)
        if key not in self._made:
            self._made[key] = _pydantic_harness(wanted)
        return self._made[key]

    async def close(self) -> None:
        """Close the connections of the models that were made from names."""
        for harness in self._made.values():
            await harness.close()


def _pydantic_harness(model: Any) -> PydanticHarness:
    if find_spec("pydantic_ai") is None:
        raise SetupError(f"the model {model} needs pydantic-ai: pip install 'heliograph[models]', or a provider's extra "
                         "such as 'heliograph[openai]'", code="no_model_library")  # fmt: skip
    from heliograph.harness.pydantic_model import PydanticHarness

    return PydanticHarness(model)

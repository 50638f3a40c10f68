"""Resolve an agent's `model` setting to a harness: a harness, a pydantic-ai model, a name, or the default."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from heliograph.errors import SetupError
from heliograph.ports import Harness

if TYPE_CHECKING:
    from heliograph.harness.pydantic_model import PydanticHarness


class Harnesses:
    """The harnesses of a process. Each model gets one harness, made at its first use."""

    def __init__(self, default_model: str | None = None):
        self._default = default_model
        self._by_model: dict[Any, PydanticHarness] = {}

    def __call__(self, model: Any) -> Harness:
        """Return the harness of a model; None stands for the default.

        Raises SetupError (`no_model`, `unknown_model`, `no_model_library`).
        """
        wanted = self._default if model is None else model
        if wanted is None:
            raise SetupError(
                "no model: set HELIOGRAPH_MODEL, for example HELIOGRAPH_MODEL=openai-chat:gpt-5, or give the agent a model",
                code="no_model",
            )
        if hasattr(wanted, "stream") and hasattr(wanted, "model"):
            harness: Harness = wanted
            return harness
        key = wanted if isinstance(wanted, str) else id(wanted)
        if key not in self._by_model:
            self._by_model[key] = _pydantic_harness(wanted)
        return self._by_model[key]

    async def close(self) -> None:
        """Close the connections of all models that were given by name."""
        for harness in self._by_model.values():
            await harness.close()


def _pydantic_harness(model: Any) -> PydanticHarness:
    if find_spec("pydantic_ai") is None:
        raise SetupError(f"the model {model} needs pydantic-ai: pip install 'heliograph[models]', or a provider's extra "
                         "such as 'heliograph[openai]'", code="no_model_library")  # fmt: skip
    from heliograph.harness.pydantic_model import PydanticHarness

    return PydanticHarness(model)

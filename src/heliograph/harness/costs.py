"""Costs and settings of model calls through pydantic-ai."""

from __future__ import annotations

from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from heliograph.ports import ModelRequest


def cost_of(response: ModelResponse) -> float | None:
    """Return the price of a response in US dollars; None if the price of its model is unknown."""
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None


def cost_at_most(model: Model, input_tokens: int, output_tokens: int) -> float | None:
    """Return the price in US dollars of a call with this many tokens; None if the price of the model is unknown."""
    usage = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
    return cost_of(ModelResponse(parts=[], usage=usage, model_name=model.model_name, provider_name=model.system,
                                 provider_url=model.base_url))  # fmt: skip


def settings_of(request: ModelRequest, model: object) -> ModelSettings | None:
    """Return the request's temperature and its limit of output tokens, or the model's own limit where it is smaller."""
    settings = ModelSettings()
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    if request.output_tokens_max is not None:
        own = getattr(model, "settings", None) or {}
        settings["max_tokens"] = min(request.output_tokens_max, own.get("max_tokens") or request.output_tokens_max)
    return settings or None

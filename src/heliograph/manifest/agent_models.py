"""The models that an agent's manifest names, as names of pydantic-ai: `anthropic:claude-sonnet-4-5`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from heliograph.manifest.document import dotted
from heliograph.manifest.manifest_fields import ManifestFields

OUTPUT_TOKENS_MAX = 10_000_000

# A model's name is shown and logged. What has another form is not taken from a variable of the environment: it may be a secret.
_MODEL_NAME = re.compile(r"(?!.*//)[A-Za-z0-9._:/+-]{1,200}")

_PREFIXES = {"openai": "openai-chat", "gemini": "google", "vertexai": "google-cloud", "vertex-ai": "google-cloud"}
_WITHOUT_MODEL = ("custom", "auto", "any", "local")  # the operator names the model of these
_PLACES = ("/spec/llm", "/spec/model")
_KEYS = ("model", "name", "id", "model_name")


@dataclass(frozen=True, slots=True)
class ModelReference:
    """A model that a manifest names. name: None if Heliograph cannot map its provider, or a variable has no value. pointer: where it stands.

    is_set: whether all of its variables have values.
    """

    name: str | None
    pointer: str
    is_set: bool = True


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The models of a manifest, in the order in which they are tried, and their settings."""

    models: tuple[ModelReference, ...] = ()
    temperature: float | None = None
    max_output_tokens: int | None = None


def read_models(fields: ManifestFields) -> ModelChoice:
    """Read `llm` or `model` of a manifest, with the fallbacks."""
    place = next((each for each in _PLACES if fields.mapping(each)), None)
    if place is None:
        name = _expanded(fields, "/spec/model") if not isinstance(fields.mapping("/spec").get("model"), dict) else None
        return ModelChoice((ModelReference(_named(None, name), "/spec/model"),) if name else ())
    models = [_model(fields, place)]
    for pointer, _ in fields.items(f"{place}/fallback_models"):
        fallback = _model(fields, pointer)
        models.append(fallback)
        if fallback is not None and fallback.name is None and fallback.is_set:
            fields.drop("no_effect", f"{dotted(pointer)} has no effect, because its provider is none that Heliograph knows", pointer,
                        "name a provider, like openai or anthropic")  # fmt: skip
    inner = (place, f"{place}/parameters")
    temperature = fields.number(*(f"{each}/temperature" for each in inner), low=0, high=2)
    tokens = fields.number(
        *(f"{each}/{key}" for each in inner for key in ("maxTokens", "max_tokens")),
        low=1,
        high=OUTPUT_TOKENS_MAX,
        whole=True,
    )
    return ModelChoice(tuple(each for each in models if each is not None), temperature, tokens)


def _model(fields: ManifestFields, place: str) -> ModelReference | None:
    key = next((each for each in _KEYS if each in fields.mapping(place)), None)
    if key is None:
        return None
    provider = _expanded(fields, f"{place}/provider")
    name = _expanded(fields, f"{place}/{key}")
    return ModelReference(_named(provider, name), f"{place}/{key}", is_set=name is not None)


def _expanded(fields: ManifestFields, pointer: str) -> str | None:
    """Return a text with its variables; None, and an error, if their values make it something else than a name."""
    text = fields.expanded(pointer, is_optional=True)
    if text is not None and text != fields.text(pointer) and _MODEL_NAME.fullmatch(text) is None:
        fields.reject("invalid_model", "the value of its environment variable is no name of a model", pointer,
                      "set the variable to a name, like gpt-5")  # fmt: skip
        return None
    return text


def _named(provider: str | None, name: str | None) -> str | None:
    """Return the name of a model with the prefix of its provider; None without both of them."""
    if not name:
        return None
    if provider is None or provider in _WITHOUT_MODEL:
        return name if ":" in name else None
    prefix = _PREFIXES.get(provider, provider)
    return name if name.startswith(f"{prefix}:") else f"{prefix}:{name}"

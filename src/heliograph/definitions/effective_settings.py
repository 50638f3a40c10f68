"""Which settings of the map `control_signals` have an effect in an application and in an agent; the others are rejected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput

if TYPE_CHECKING:
    from heliograph.control.settings import ControlSettings

_OF_CALLS = ("timeout_seconds", "retry", "circuit_breaker", "rate_limit")
OF_AGENTS: Mapping[str, tuple[str, ...]] = {"tool_call": _OF_CALLS, "delegation": _OF_CALLS}
OF_APPLICATIONS: Mapping[str, tuple[str, ...]] = {
    **OF_AGENTS,
    "halt": ("force_after_seconds",),
    "heartbeat": ("enabled", "interval_seconds", "timeout_seconds", "missed_threshold"),
}
_CONSTANTS = {  # fields with one possible value, which the signals of the type have
    "async": ("tool_call", "delegation", "halt", "error", "ready", "heartbeat"),
    "timeout_seconds": ("halt",),
}
_FIELDS = {"async": "async_"}


def check_effective(
    value: Mapping[str, Any], settings: ControlSettings, path: str, effective: Mapping[str, tuple[str, ...]]
) -> None:
    """Raise InvalidInput (`no_effect`) for a setting without an effect. settings: the map `value`, parsed."""
    for error, _ in without_effect(value, settings, path, effective):
        raise error


def without_effect(
    value: Mapping[str, Any], settings: ControlSettings, path: str, effective: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[InvalidInput, bool]]:
    """Yield an error for each setting without an effect, and whether the setting contradicts the signals of its type."""
    for kind, given in value.items():
        own = getattr(settings, kind)
        for key in given:
            if kind in _CONSTANTS.get(key, ()):
                error = _contradiction(kind, key, getattr(own, _FIELDS.get(key, key)), f"{path}/{kind}/{key}")
                if error is not None:
                    yield error, True
            elif key not in effective.get(kind, ()):
                yield InvalidInput(f"control_signals: '{safe_repr(key)}' of {kind} has no effect here; {_hint(kind, key, effective)}",
                                   code="no_effect", path=f"{path}/{kind}/{key}"), False  # fmt: skip


def _contradiction(kind: str, key: str, value: Any, path: str) -> InvalidInput | None:
    """Return an error if a field with one possible value has another one."""
    from heliograph.control.signals import control_type

    constant = control_type(kind, path).model_fields[_FIELDS.get(key, key)].default
    if value is None or value == constant:
        return None
    return InvalidInput(f"control_signals: '{key}' of {kind} is always {_as_json(constant)}, and {_as_json(value)} has no effect; remove it",
                        code="no_effect", path=path)  # fmt: skip


def _as_json(value: Any) -> str:
    """Return a value as it stands in JSON and YAML."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


def _hint(kind: str, key: str, effective: Mapping[str, tuple[str, ...]]) -> str:
    """Return where the setting belongs, or else what has an effect."""
    if key in OF_APPLICATIONS.get(kind, ()):
        return "set it in the control_signals of the application"
    if (kind, key) == ("error", "payload"):
        return "pass the map to lifecycle_options, which returns the options of an agent for it"
    if kind in effective:
        return f"remove it. The settings of {kind} with an effect are {', '.join(effective[kind])}"
    return f"remove it. The types with such settings are {', '.join(effective)}"

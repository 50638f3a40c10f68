"""Which settings of the map `control_signals` have an effect in an application and in an agent; the others are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput

_OF_CALLS = ("timeout_seconds", "retry", "circuit_breaker", "rate_limit")
_EFFECTIVE: Mapping[str, tuple[str, ...]] = {"tool_call": _OF_CALLS, "delegation": _OF_CALLS}
_CONSTANTS = {  # fields with one possible value, which the signals of the type have
    "async": ("tool_call", "delegation", "halt", "error", "ready", "heartbeat"),
    "timeout_seconds": ("halt",),
}
_FIELDS = {"async": "async_"}


def check_effective_settings(value: Mapping[str, Any] | None, path: str = "/control_signals") -> None:
    """Check the map of an application or of an agent. Raises InvalidInput: `no_effect`, and the errors of `read_settings`."""
    if value is None:
        return
    from heliograph.control.settings import read_settings  # slow to import; most applications have no such map

    settings = read_settings(value, path)
    for kind, given in value.items():
        own = getattr(settings, kind)
        for key in given:
            if kind in _CONSTANTS.get(key, ()):
                _check_constant(kind, key, getattr(own, _FIELDS.get(key, key)), f"{path}/{kind}/{key}")
            elif key not in _EFFECTIVE.get(kind, ()):
                raise InvalidInput(f"control_signals: '{safe_repr(key)}' of {kind} has no effect; remove it. {_effective_of(kind)}",
                                   code="no_effect", path=f"{path}/{kind}/{key}")  # fmt: skip


def _check_constant(kind: str, key: str, value: Any, path: str) -> None:
    from heliograph.control.signals import control_type

    constant = control_type(kind, path).model_fields[_FIELDS.get(key, key)].default
    if value is not None and value != constant:
        shown = str(constant).lower()
        raise InvalidInput(f"control_signals: '{key}' of {kind} is always {shown} here, and cannot become {str(value).lower()}; remove it",
                           code="no_effect", path=path)  # fmt: skip


def _effective_of(kind: str) -> str:
    keys = _EFFECTIVE.get(kind)
    if keys is None:
        return f"The types whose settings have an effect are {' and '.join(_EFFECTIVE)}"
    return f"The settings of {kind} with an effect are {', '.join(keys)}"

"""Control signals on the wire: the signals, their payloads and envelopes, their settings, and routes."""

from __future__ import annotations

from heliograph.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers assume True

if TYPE_CHECKING:
    from heliograph.control.envelope import Envelope, read_envelope
    from heliograph.control.payloads import (
        DelegationPayload,
        DelegationResponsePayload,
        ErrorPayload,
        HaltPayload,
        HeartbeatPayload,
        ReadyPayload,
        ToolCallPayload,
        ToolCallResponsePayload,
    )
    from heliograph.control.routing import RouteTable, read_routes
    from heliograph.control.settings import ControlSettings, HeartbeatSettings, read_settings
    from heliograph.control.signals import (
        DelegationResponse,
        DelegationSignal,
        ErrorSignal,
        HaltSignal,
        HeartbeatSignal,
        ReadySignal,
        ToolCallResponse,
        ToolCallSignal,
        read_signal,
    )

__all__ = [
    "ControlSettings",
    "DelegationPayload",
    "DelegationResponse",
    "DelegationResponsePayload",
    "DelegationSignal",
    "Envelope",
    "ErrorPayload",
    "ErrorSignal",
    "HaltPayload",
    "HaltSignal",
    "HeartbeatPayload",
    "HeartbeatSettings",
    "HeartbeatSignal",
    "ReadyPayload",
    "ReadySignal",
    "RouteTable",
    "ToolCallPayload",
    "ToolCallResponse",
    "ToolCallResponsePayload",
    "ToolCallSignal",
    "read_envelope",
    "read_routes",
    "read_settings",
    "read_signal",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "heliograph.control.envelope": ("Envelope", "read_envelope"),
            "heliograph.control.payloads": (
                "DelegationPayload",
                "DelegationResponsePayload",
                "ErrorPayload",
                "HaltPayload",
                "HeartbeatPayload",
                "ReadyPayload",
                "ToolCallPayload",
                "ToolCallResponsePayload",
            ),
            "heliograph.control.routing": ("RouteTable", "read_routes"),
            "heliograph.control.settings": ("ControlSettings", "HeartbeatSettings", "read_settings"),
            "heliograph.control.signals": (
                "DelegationResponse",
                "DelegationSignal",
                "ErrorSignal",
                "HaltSignal",
                "HeartbeatSignal",
                "ReadySignal",
                "ToolCallResponse",
                "ToolCallSignal",
                "read_signal",
            ),
        },
    )

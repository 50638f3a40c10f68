"""Adapters: send the signals of subscriptions elsewhere, to functions, webhooks, files, logs, metrics and terminals."""

from __future__ import annotations

from heliograph.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers assume True

if TYPE_CHECKING:
    from heliograph.adapters.json_lines import JsonLines
    from heliograph.adapters.logs import Logs
    from heliograph.adapters.metrics import Metrics
    from heliograph.adapters.terminal import Terminal
    from heliograph.adapters.webhook import Webhook

__all__ = ["JsonLines", "Logs", "Metrics", "Terminal", "Webhook"]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "heliograph.adapters.json_lines": ("JsonLines",),
            "heliograph.adapters.logs": ("Logs",),
            "heliograph.adapters.metrics": ("Metrics",),
            "heliograph.adapters.terminal": ("Terminal",),
            "heliograph.adapters.webhook": ("Webhook",),
        },
    )

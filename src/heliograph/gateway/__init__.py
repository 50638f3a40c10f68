"""Gateways: exchange tasks with other systems over HTTP."""

from __future__ import annotations

from heliograph.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers assume True

if TYPE_CHECKING:
    from heliograph.gateway.gateway import Gateway

__all__ = ["Gateway"]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "heliograph.gateway.gateway": ("Gateway",),
        },
    )

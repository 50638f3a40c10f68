"""Manifests: read a file, and the settings of an application from it."""

from __future__ import annotations

from heliograph.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers assume True

if TYPE_CHECKING:
    from heliograph.manifest.message_routing import read_message_routing
    from heliograph.manifest.reader import parse_manifest
    from heliograph.manifest.runtime_spec import read_runtime_spec

__all__ = ["parse_manifest", "read_message_routing", "read_runtime_spec"]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "heliograph.manifest.message_routing": ("read_message_routing",),
            "heliograph.manifest.reader": ("parse_manifest",),
            "heliograph.manifest.runtime_spec": ("read_runtime_spec",),
        },
    )

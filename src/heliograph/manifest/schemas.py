"""The JSON Schemas of the kinds of manifests. They are files of this package, so editors can use them as well."""

from __future__ import annotations

import json
from typing import Any

KINDS = ("Agent", "Agent-v0.5", "MessageRouting", "RuntimeSpec")


def schema_text(kind: str) -> str:
    """Return the JSON Schema of a kind as text."""
    from importlib.resources import files  # slow to import

    return files("heliograph.manifest").joinpath("schemas", f"{kind}.json").read_text(encoding="utf-8")


def schema_of_kind(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind."""
    schema: dict[str, Any] = json.loads(schema_text(kind))
    return schema

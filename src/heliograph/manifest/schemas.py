"""The JSON Schemas of the kinds of manifests. They are files of this package; `schema_descriptions` completes them for editors."""

from __future__ import annotations

import json
from typing import Any

KINDS = ("Agent", "Agent-v0.5", "MessageRouting", "RuntimeSpec")


def schema_of_kind(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind."""
    from importlib.resources import files  # slow to import

    text = files("heliograph.manifest").joinpath("schemas", f"{kind}.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema

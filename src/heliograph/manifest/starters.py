"""Commented manifests to start from, one for each kind."""

from __future__ import annotations

STARTERS = {"Agent": "agent.yaml", "RuntimeSpec": "runtime.yaml", "MessageRouting": "routing.yaml"}


def starter_text(kind: str) -> str:
    """Return the starter of a kind."""
    from importlib.resources import files  # slow to import

    return files("heliograph.manifest").joinpath("starter_files", f"{kind}.yaml").read_text(encoding="utf-8")


def schema_file(kind: str) -> str:
    """Return the name of the schema file to which the starter points."""
    return f"{kind}.schema.json"

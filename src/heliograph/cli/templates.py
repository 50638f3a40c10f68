"""The applications that `helio init` writes, and the file of each."""

from __future__ import annotations

TEMPLATES = {"tools": "app.py", "workflow": "app.py", "chat": "app.py", "fastapi": "app.py"}


def template_text(name: str) -> str:
    """Return the text of a template."""
    from importlib.resources import files  # slow to import

    return files("heliograph.cli").joinpath("starter_files", f"{name}.txt").read_text(encoding="utf-8")

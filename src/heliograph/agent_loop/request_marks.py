"""What a recorded reply keeps of its request: short hashes of the texts that its author wrote, so that a check names changed ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.tool import Tool
from heliograph.ports import ModelRequest

_DIGITS = 8  # of each hash: they find changes, and prove nothing


def marks_of(spec: AgentSpec, request: ModelRequest) -> dict[str, str]:
    """The marks of a request: of the template of its prompt, its system text, its tools, and the temperature and the length of its reply.

    The template and not the prompt, because a resumed turn fills in the state as it is then. A prompt that a function makes has no mark, and
    neither have the tools of servers, whose descriptions are theirs.
    """
    # the settings are those of the agent: a budget may limit the reply of a request further
    texts: dict[str, Any] = {"system": request.system, "settings": (spec.temperature, spec.max_output_tokens)}
    if isinstance(spec.prompt, str):
        texts["prompt"] = spec.prompt
    if all(isinstance(tool, Tool) for tool in spec.tools):
        texts["tools"] = request.tools
    return {name: _mark(text) for name, text in texts.items()}


def changed_marks(recorded: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    """The names of the marks that differ, of those that both have."""
    return sorted(name for name, mark in now.items() if recorded.get(name, mark) != mark)


def _mark(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:_DIGITS]

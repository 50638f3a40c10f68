"""What floor 3 expects of floor 4, as protocols: the harness is the way to a model, and nothing else is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from heliograph.types import Json


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model. `output` is None for text, or a type that the answer is validated into."""

    prompt: str
    system: str | None = None
    output: Any = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    content: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    content: str


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The end of an answer: its whole text, or its validated output, and what it cost."""

    text: str
    output: Json = None
    thinking: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


Chunk: TypeAlias = TextDelta | ThinkingDelta | ModelReply


class Harness(Protocol):
    """A model that can be asked. `stream` yields deltas in order and ends with exactly one ModelReply.

    Raises HarnessError for whatever the provider or the answer got wrong.
    """

    @property
    def model(self) -> str:
        """The name shown in harness:start."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]: ...

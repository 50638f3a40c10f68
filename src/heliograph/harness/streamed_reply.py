"""Collect text, thinking, tokens and costs while pydantic-ai streams the responses to one request."""

from __future__ import annotations

from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)

from heliograph.harness.costs import cost_of
from heliograph.ports import Chunk, TextDelta, ThinkingDelta


class StreamedReply:
    """The content and usage of all responses to one request: the last one, and earlier ones with an invalid output."""

    def __init__(self) -> None:
        self.text, self.thinking, self.costs = "", "", list[float]()
        self.input_tokens = self.output_tokens = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cost(self) -> float | None:
        """The sum in US dollars; None if no price is known."""
        return sum(self.costs) if self.costs else None

    def add(self, chunk: Chunk) -> Chunk:
        """Add a chunk to the text or to the thinking, and return it."""
        self.text += chunk.content if isinstance(chunk, TextDelta) else ""
        self.thinking += chunk.content if isinstance(chunk, ThinkingDelta) else ""
        return chunk

    def count(self, response: ModelResponse) -> None:
        """Add the tokens and the cost of a complete response."""
        self.input_tokens += response.usage.input_tokens
        self.output_tokens += response.usage.output_tokens
        if (cost := cost_of(response)) is not None:
            self.costs.append(cost)


def chunk_of(event: object) -> Chunk | None:
    """Convert an event of pydantic-ai to a chunk of text or thinking; None for other events."""
    content = (
        event.part if isinstance(event, PartStartEvent) else event.delta if isinstance(event, PartDeltaEvent) else None
    )
    match content:
        case TextPart(content=text) | TextPartDelta(content_delta=text) if text:
            return TextDelta(text)
        case ThinkingPart(content=text) | ThinkingPartDelta(content_delta=text) if text:
            return ThinkingDelta(text)
    return None

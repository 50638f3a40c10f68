"""What floor 3 expects of floor 4, as protocols: the harness is the way to a model, and nothing else is; memory is what
outlives turns and runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from heliograph.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is told of it. `parameters` is the JSON Schema of its arguments, an object."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a model asks for. `id` is the provider's; `arguments` an object, or the text that was none."""

    id: str
    tool: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class UserMessage:
    content: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the model answered. `raw`: the same in the words of the harness that asked, which may need it again."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    raw: Json = None


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """What came of one tool call of the message before. A message with calls is followed by one of these for each.

    is_untrusted: it comes from outside, and is put to a model as `heliograph.untrusted` makes it (S9).
    """

    tool_call_id: str
    tool: str
    content: Json
    is_error: bool = False
    is_untrusted: bool = False


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model: the conversation so far, oldest first.

    output: None for text, or a type that the answer is validated into. tools: what the model may call instead.
    output_tokens_max: the longest answer that the provider may give, thinking included; None for its own limit.
    is_metered: what it may use is reserved, of a budget: the model is asked once.
    has_untrusted: among the results there are, or may be, some from outside.
    """

    messages: tuple[Message, ...]
    system: str | None = None
    output: Any = None
    tools: tuple[ToolSpec, ...] = ()
    output_tokens_max: int | None = None
    is_metered: bool = False
    has_untrusted: bool = False

    @property
    def withdrawn(self) -> list[str]:
        """Tools with results in the conversation, where no tool is offered any more; providers require their declarations."""
        called = {message.tool for message in self.messages if isinstance(message, ToolMessage)}
        return [] if self.tools or self.output is not None else sorted(called)

    @property
    def prompt(self) -> str:
        """The newest message of the user."""
        return next((m.content for m in reversed(self.messages) if isinstance(m, UserMessage)), "")


@dataclass(frozen=True, slots=True)
class TextDelta:
    content: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    content: str


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The end of an answer: its whole text, its validated output or the tools that it calls, and what it cost.

    cost_usd: what the provider asks for it; None where that is not known. raw: see AssistantMessage.
    is_cut: the provider stopped at the longest answer that it may give.
    """

    text: str
    output: Json = None
    thinking: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    cost_usd: float | None = None
    raw: Json = None
    is_cut: bool = False


Chunk: TypeAlias = TextDelta | ThinkingDelta | ModelReply


class Harness(Protocol):
    """A model that can be asked.

    `stream` yields deltas in order and ends with exactly one ModelReply, whose text and thinking begin with what was
    streamed of them; what was not is streamed then. Raises HarnessError for whatever the provider or the answer got
    wrong, `recoverable` where the same question may be answered later.
    One that knows what its model costs may have `cost_at_most(input_tokens, output_tokens)`: dollars, or None.
    """

    @property
    def model(self) -> str:
        """The name shown in harness:start."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]: ...


@dataclass(frozen=True, slots=True)
class MemoryHit:
    """A memory that was found. agent: whose it is; None: the project's. rank: how well it fits; larger is better.

    trust: "untrusted" for a memory that follows from untrusted content, or whose origin is unknown. It taints the turn that
    finds it.
    """

    memory_id: str
    text: str
    agent: str | None = None
    metadata: JsonObject = field(default_factory=dict)
    rank: float = 0.0
    trust: str = "untrusted"


class Memory(Protocol):
    """Where agents keep what outlives their turns: PostgreSQL by default, or a store of vectors.

    The metadata of a memory that follows from untrusted content has the key `trust` with the value "untrusted". `search`
    returns all other memories with `trust="trusted"`. A worker calls both methods inside a step, and the next worker
    calls them again if it is lost in the middle: the same id is the same memory.
    """

    async def store(self, project: str, memory_id: str, agent: str | None, text: str, metadata: JsonObject) -> None:
        """Keep one memory. Raises a HeliographError where it is refused."""
        ...

    async def search(self, project: str, agent: str | None, query: str, limit: int) -> list[MemoryHit]:
        """The best of the agent's own and the project's first; agent None: of everybody's in the project."""
        ...

"""Protocols that users can implement, `Harness` for a model and `Memory` for memories beyond a run; and `Tracer` for telemetry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from heliograph.outbox_records import Callback
from heliograph.reactive.reaction import Reaction
from heliograph.records import Claimed, PendingSignal
from heliograph.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The description of a tool for a model. `parameters` is the JSON Schema of its arguments, an object."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that a model requests. id: the provider's id. arguments: an object, or text that is not a JSON object."""

    id: str
    tool: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file that a message names, such as an image: the provider reads it from its URL. media_type: None to derive it from the URL."""

    url: str
    media_type: str | None = None


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message to the model: the prompt, an earlier message of a conversation, or a correction of the model's reply."""

    content: str
    files: tuple[FileReference, ...] = ()


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A reply of the model. raw: the reply in the harness's own format, which it may need for the next request."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    raw: Json = None


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The result of one tool call. A message with tool calls is followed by one of these for each.

    is_untrusted: the content comes from outside the trust boundary; a model receives it framed by `heliograph.untrusted`.
    """

    tool_call_id: str
    tool: str
    content: Json
    is_error: bool = False
    is_untrusted: bool = False


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call: the conversation so far, oldest message first.

    output: None for text, or the type that the reply is validated into. tools: the tools that the model may call.
    output_tokens_max: the longest reply, thinking included; None for the provider's limit. temperature: None for that of the provider.
    is_metered: the call has a reservation in a budget, so the harness must not repeat it.
    has_untrusted: some results come, or may come, from outside the trust boundary.
    """

    messages: tuple[Message, ...]
    system: str | None = None
    output: Any = None
    tools: tuple[ToolSpec, ...] = ()
    output_tokens_max: int | None = None
    is_metered: bool = False
    has_untrusted: bool = False
    temperature: float | None = None

    @property
    def withdrawn(self) -> list[str]:
        """Tools with results in the conversation, if the request offers none; providers require their declarations."""
        called = {message.tool for message in self.messages if isinstance(message, ToolMessage)}
        return [] if self.tools or self.output is not None else sorted(called)

    @property
    def prompt(self) -> str:
        """The newest message of the user."""
        return next((m.content for m in reversed(self.messages) if isinstance(m, UserMessage)), "")


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply's text."""

    content: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's thinking."""

    content: str


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The end of a reply: its whole text, its validated output or its tool calls, and its cost. Only the text may be positional.

    cost_usd: the provider's price; None if unknown. raw: see AssistantMessage.
    is_cut: the provider truncated the reply at the length limit.
    """

    text: str
    _: KW_ONLY
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
    """Access to a model.

    `stream` yields deltas in order and ends with exactly one ModelReply. The reply's text and thinking begin with the deltas; the
    runtime then streams the rest. It raises HarnessError for a failure of the provider or an invalid reply, with `recoverable` if
    the same call may succeed later.
    A harness of a model with a price may have a method `cost_at_most(input_tokens, output_tokens)`, which returns US dollars
    or None.
    """

    @property
    def model(self) -> str:
        """The name of the model, as the signal `harness:start` records it."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]: ...


@dataclass(frozen=True, slots=True)
class MemoryHit:
    """A memory that a search found. agent: its owner, None for the project. rank: its relevance, larger is better.

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
    """Stores the memories of agents beyond their turns: in PostgreSQL by default, or for example in a vector store.

    The metadata of a memory that follows from untrusted content has the key `trust` with the value "untrusted". `search` must return
    all other memories with `trust="trusted"`. A worker calls both methods inside a step. If the worker dies during the step, the next
    worker calls them again with the same id.
    """

    async def store(self, project: str, memory_id: str, agent: str | None, text: str, metadata: JsonObject) -> None:
        """Store one memory; a second call with the same id replaces it. agent: its owner; None for the project.

        Raises a HeliographError to reject the memory.
        """
        ...

    async def search(self, project: str, agent: str | None, query: str, limit: int) -> list[MemoryHit]:
        """Return the best matches among the memories of the agent and of the project, the best first. agent: None for all agents."""
        ...


class ModelCallTrace(Protocol):
    """The span of one model call."""

    def replied(self, reply: ModelReply) -> None: ...


class ToolCallTrace(Protocol):
    """The span of one tool call in this process."""

    def returned(self, status: str, output: Json, error: JsonObject | None) -> None: ...


class TurnTrace(Protocol):
    """The spans of one owned turn, from its claim until it ends or is released.

    An exception that leaves the body of a `with` statement is recorded as the error of the span. Telemetry raises none of its own.
    """

    @property
    def ids(self) -> tuple[str, str] | None:
        """The ids of the trace and of the turn's span, in hexadecimal; None without telemetry."""
        ...

    def claimed(self) -> AbstractContextManager[None]:
        """Make the turn current, until this worker no longer owns it."""
        ...

    def model_call(self, model: str, request: ModelRequest) -> AbstractContextManager[ModelCallTrace]: ...

    def tool_call(self, call_id: str, tool: str, arguments: Json) -> AbstractContextManager[ToolCallTrace]: ...

    def headers_of(self, call_id: str) -> dict[str, str]:
        """Return the headers that continue the trace in the system that executes a call; empty without telemetry."""
        ...

    def delegated(self, call_id: str, agent: str, turn_id: str) -> None:
        """Record the activation of a child, after the commit that suspended this turn."""
        ...

    def released(self, outcome: str) -> None:
        """Note that this worker released the turn: suspended, or deferred."""
        ...

    def reacted(self, reaction: Reaction) -> None:
        """Record what the reaction to the end of the turn caused, after its commit: turns that it activated, and the end of the run."""
        ...

    def ended(self, claimed: Claimed, outcome: str, error: JsonObject | None, usage: tuple[int, int]) -> None:
        """Record the turn after the commit of its end. claimed: with its calls as they are now. usage: input and output tokens."""
        ...


class Tracer(Protocol):
    """Records runs and turns as spans of distributed traces. `heliograph.telemetry` has an implementation, and one that does nothing."""

    @property
    def is_on(self) -> bool:
        """Whether it may record anything; otherwise callers need not read what it records."""
        ...

    def memory_of_start(self, headers: Iterable[tuple[bytes, bytes]] | None = None) -> dict[str, Any]:
        """Return what the memory of a new run keeps of its caller's trace. headers: of the request; None for the current span."""
        ...

    def started(self, application: str, run_id: str, reaction: Reaction) -> None:
        """Record the start of a run, after its commit."""
        ...

    def reacted(self, application: str, run_id: str, reaction: Reaction, pending: Sequence[PendingSignal]) -> None:
        """Record the turns that a committed reaction to signals has activated, and the end of the run.

        pending: the signals; some are the ends of turns that the kernel ended.
        """
        ...

    def enqueued(self, run_id: str, memory: Mapping[str, Any], agent: str, turn_id: str, began_at: datetime) -> None:
        """Record a message to an agent of a run, after its commit. The current span is that of its sender."""
        ...

    def turn(self, claimed: Claimed, project: str) -> TurnTrace: ...

    def headers_of(self, run_id: str, turn_id: str | None, memory: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers of a message about a turn, or about a run, which continue its trace."""
        ...

    def called_back(self, callback: Callback, began_at: datetime, result: Mapping[str, Any]) -> None:
        """Record an attempt to send a callback. result: as for `record_callbacks`."""
        ...

    def sent(self, url: str, headers: Mapping[str, str], began_at: datetime, attempt: int, status: int | None) -> None:
        """Record a request to a gateway. headers: those of its trace. status: of the response; None without one."""
        ...

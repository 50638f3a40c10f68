"""A model that replies from a script: for tests, demonstrations and the simulator, without network or key."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias, TypeGuard

from heliograph.errors import HarnessError
from heliograph.ports import (
    AssistantMessage,
    Chunk,
    ModelReply,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    UserMessage,
)

Part: TypeAlias = TextDelta | ThinkingDelta | ToolCall | Exception
# Any: a typed output, such as a pydantic model; type checkers cannot name "everything that has a JSON form"
Reply: TypeAlias = str | ModelReply | ToolCall | Sequence[Part] | Exception | Any

_REQUESTS_MAX = 1000


class ScriptedModel:
    """A model whose replies are `replies`. Text is streamed word by word.

    replies: a list, a mapping or a function. A list is used in order, over the life of this object and across turns. A
        mapping gives the reply to each prompt that contains its key. A function of the request, plain or async, sees all
        messages, so it can distinguish the steps of a turn even if the turn continues in another process.
    per_turn: a list begins again in each conversation: its n-th reply follows n - 1 earlier ones. A request that is repeated
        after a crash therefore receives the same reply.
    pause: an async function that is awaited between words with `pause_seconds`, to slow the stream down for spectators.

    A reply is a text; a ToolCall, or several in a list; a list of TextDelta and ThinkingDelta, which are streamed as they are, and
    may end with tool calls or an exception; an exception, which is raised; or a ModelReply. Anything else is the typed output of an
    agent with `output`: a pydantic model, a dataclass or a mapping.
    """

    def __init__(
        self, replies: Sequence[Reply] | Mapping[str, Reply] | Callable[[ModelRequest], Reply | Awaitable[Reply]], *,
        per_turn: bool = False, pause: Callable[[float], Awaitable[None]] | None = None, pause_seconds: float = 0.0,
    ):  # fmt: skip
        self._replies = replies
        self._next = 0
        self._per_turn = per_turn
        self._pause = pause
        self._pause_seconds = pause_seconds
        self.requests: list[ModelRequest] = []  # the last thousand, oldest first

    @property
    def model(self) -> str:
        return "scripted"

    @property
    def repeats(self) -> bool:
        """Whether a repeated request receives the same reply, as far as the script decides: not from a list across turns."""
        return self._per_turn or callable(self._replies) or isinstance(self._replies, Mapping)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.requests.append(request)
        del self.requests[:-_REQUESTS_MAX]
        reply = self._replies(request) if callable(self._replies) else self._scripted(request)
        reply = await reply if inspect.isawaitable(reply) else reply
        if _is_stream(reply):
            async with aclosing(self._streamed(reply, request)) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        ended = _ended(reply, request)
        words = ended.text.split(" ") if ended.text else []
        for n, word in enumerate(words):
            await self._wait()
            yield TextDelta(word if n == len(words) - 1 else word + " ")
        yield ended

    async def _streamed(self, parts: Sequence[Part], request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        text, thinking, calls = "", "", list[ToolCall]()
        for part in parts:
            match part:
                case TextDelta(content):
                    text += content
                case ThinkingDelta(content):
                    thinking += content
                case ToolCall():
                    calls.append(part)
                    continue
                case Exception():
                    raise part
                case _:
                    raise HarnessError(f"a reply of the script streams a list, which has a {type(part).__name__}; a list that is streamed has "
                                       "TextDelta, ThinkingDelta, ToolCall, and at its end perhaps an exception")  # fmt: skip
            await self._wait()
            yield part
        yield ModelReply(text, thinking=thinking, input_tokens=_words_of(request),
                         output_tokens=len(f"{thinking} {text}".split()) + len(calls), tool_calls=tuple(calls))  # fmt: skip

    async def _wait(self) -> None:
        if self._pause is not None:
            await self._pause(self._pause_seconds)

    def _scripted(self, request: ModelRequest) -> Reply:
        assert not callable(self._replies)
        if isinstance(self._replies, Mapping):
            for piece, reply in self._replies.items():
                if piece in request.prompt:
                    return reply
            raise HarnessError(
                f"the script has no reply to this prompt; add one (it has replies to {', '.join(self._replies)})"
            )
        place = self._next
        if self._per_turn:
            place = sum(isinstance(message, AssistantMessage) for message in request.messages)
        if place >= len(self._replies):
            raise HarnessError(f"the script has ended: all {len(self._replies)} replies are used; add more")
        self._next = place + 1
        return self._replies[place]


def _is_stream(reply: Reply) -> TypeGuard[Sequence[Part]]:
    return isinstance(reply, list | tuple) and any(
        isinstance(part, TextDelta | ThinkingDelta | Exception) for part in reply
    )


def _ended(reply: Reply, request: ModelRequest) -> ModelReply:
    if isinstance(reply, Exception):
        raise reply
    if isinstance(reply, ModelReply):
        return reply
    tokens = _words_of(request)
    if isinstance(reply, str):
        return ModelReply(reply, input_tokens=tokens, output_tokens=len(reply.split(" ")))
    if isinstance(reply, ToolCall):
        reply = (reply,)
    if isinstance(reply, list | tuple) and all(isinstance(part, ToolCall) for part in reply):
        return ModelReply("", input_tokens=tokens, output_tokens=len(reply), tool_calls=tuple(reply))
    from heliograph.signals.values import to_json  # slow to import, and most scripts have no typed output

    output = to_json(reply)
    return ModelReply("", output=output, input_tokens=tokens, output_tokens=len(str(output).split()))


def _words_of(request: ModelRequest) -> int:
    return sum(len(m.content.split()) for m in request.messages if isinstance(m, UserMessage))

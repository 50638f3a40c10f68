"""A model that replies from a script: for tests, demonstrations and the simulator, without network or key."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from heliograph.errors import HarnessError
from heliograph.ports import Chunk, ModelReply, ModelRequest, TextDelta, ToolCall, UserMessage

Reply: TypeAlias = str | ModelReply | ToolCall | Sequence[ToolCall] | Exception


class ScriptedModel:
    """Streams `replies` word by word.

    replies: a list, a mapping or a function. A list is used in order, over the life of this object and across turns. A
        mapping gives the reply to each prompt that contains its key. A function of the request, plain or async, sees all
        messages, so it can distinguish the steps of a turn even if the turn continues in another process. A reply is a
        text, a ModelReply, or one or several ToolCalls; an exception is raised.
    pause: an async function that is awaited between words with `pause_seconds`, to slow the stream down for spectators.
    """

    def __init__(
        self, replies: Sequence[Reply] | Mapping[str, Reply] | Callable[[ModelRequest], Reply | Awaitable[Reply]], *,
        pause: Callable[[float], Awaitable[None]] | None = None, pause_seconds: float = 0.0,
    ):  # fmt: skip
        self._replies = replies
        self._next = 0
        self._pause = pause
        self._pause_seconds = pause_seconds

    @property
    def model(self) -> str:
        return "scripted"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        reply = self._replies(request) if callable(self._replies) else self._scripted(request)
        reply = _reply(await reply if inspect.isawaitable(reply) else reply, request)
        words = reply.text.split(" ") if reply.text else []
        for n, word in enumerate(words):
            if self._pause is not None:
                await self._pause(self._pause_seconds)
            yield TextDelta(word if n == len(words) - 1 else word + " ")
        yield reply

    def _scripted(self, request: ModelRequest) -> Reply:
        assert not callable(self._replies)
        if isinstance(self._replies, Mapping):
            for piece, reply in self._replies.items():
                if piece in request.prompt:
                    return reply
            raise HarnessError(
                f"the script has no reply to this prompt; add one (it has replies to {', '.join(self._replies)})"
            )
        if self._next >= len(self._replies):
            raise HarnessError(f"the script has ended: all {len(self._replies)} replies are used; add more")
        self._next += 1
        return self._replies[self._next - 1]


def _reply(reply: Reply, request: ModelRequest) -> ModelReply:
    if isinstance(reply, Exception):
        raise reply
    if isinstance(reply, ModelReply):
        return reply
    tokens = sum(len(m.content.split()) for m in request.messages if isinstance(m, UserMessage))
    if isinstance(reply, str):
        return ModelReply(reply, input_tokens=tokens, output_tokens=len(reply.split(" ")))
    calls = (reply,) if isinstance(reply, ToolCall) else tuple(reply)
    return ModelReply("", input_tokens=tokens, output_tokens=len(calls), tool_calls=calls)

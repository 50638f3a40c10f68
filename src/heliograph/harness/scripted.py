"""A model that answers from a script: for tests, demonstrations and the simulator. No network, no key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from heliograph.errors import HarnessError
from heliograph.ports import Chunk, ModelReply, ModelRequest, TextDelta


class ScriptedModel:
    """Streams `replies` word by word.

    replies: a list, answered in order over the life of this object; a mapping from a piece of the prompt to its
        reply; or a function of the request. A reply that is an exception is raised.
    pause: awaited between words with the seconds given by `pause_seconds`, for those who want to watch.
    """

    def __init__(
        self, replies: Sequence[str | Exception] | Mapping[str, str] | Callable[[ModelRequest], str], *,
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
        reply = self._reply(request)
        words = reply.split(" ")
        for n, word in enumerate(words):
            if self._pause is not None:
                await self._pause(self._pause_seconds)
            yield TextDelta(word if n == len(words) - 1 else word + " ")
        yield ModelReply(reply, input_tokens=len(request.prompt.split()), output_tokens=len(words))

    def _reply(self, request: ModelRequest) -> str:
        if callable(self._replies):
            return self._replies(request)
        if isinstance(self._replies, Mapping):
            for piece, reply in self._replies.items():
                if piece in request.prompt:
                    return reply
            raise HarnessError(f"the script has no reply to this prompt; it knows {', '.join(self._replies)}")
        if self._next >= len(self._replies):
            raise HarnessError(f"the script is over: all {len(self._replies)} replies are used")
        self._next += 1
        scripted: str | Exception = self._replies[self._next - 1]
        if isinstance(scripted, Exception):
            raise scripted
        return scripted

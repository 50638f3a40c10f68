"""A session: a run that waits for messages, answers each in a turn, and remembers the conversation in its log (decision 0133)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from heliograph.client.arguments import check_limit, check_stop
from heliograph.client.message_client import MessageClient
from heliograph.client.messages import message_payload, turn_of_message
from heliograph.client.stops import close_session, stop_turn
from heliograph.definitions.agent import PRIORITIES
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, NotFound
from heliograph.ids import split_signal_id
from heliograph.ports import FileReference
from heliograph.reactive.workflow import Workflow, hint_of_agents
from heliograph.recording.options import RecordingOptions
from heliograph.records import EarlierTurn
from heliograph.runtime import Runtime, served_run
from heliograph.signals.model import Signal
from heliograph.turn.deliverable import read_output
from heliograph.turn.earlier_turns import MESSAGE, files_of_message, reply_text, text_of_message
from heliograph.types import Json

T = TypeVar("T")

_NEWEST = 2**62  # a position after every signal


@dataclass(frozen=True, slots=True)
class Reply:
    """The end of the turn that answered a message.

    text: the reply, or the part of it that had come when it was stopped. output: the reply of an agent with an output type, or its text.
    outcome: success, partial, failed, timeout, or canceled for a reply that was stopped. error: {code, message} of a turn without success.
    turn_id: of the turn; `helio turn show` explains it.
    """

    text: str
    output: Json
    outcome: str
    turn_id: str
    error: Mapping[str, Any] | None = None

    @property
    def was_stopped(self) -> bool:
        """Whether the reply was stopped before its end; `text` has the part that had come."""
        return self.outcome == "canceled"


@dataclass(frozen=True, slots=True)
class SessionMessage:
    """One message of a session's history. outcome: of a reply, see `Reply.outcome`; None for a message of the user."""

    role: Literal["user", "assistant"]
    text: str
    turn_id: str
    outcome: str | None = None
    files: tuple[FileReference, ...] = ()


class TextPiece(str):
    """A piece of the text of a reply.

    offset: the characters before it in the text of its model call. Where it is 0, a text begins: the first one, the next one after tool calls,
    or the same one again, after a crash or a failure of the model. In the last case, the unfinished text before it is obsolete.
    A copy and a pickle have the offset, too. `str(piece)` is a plain `str`: pass it to libraries that accept no subclass, such as msgspec.
    """

    offset: int

    def __new__(cls, content: str, offset: int) -> TextPiece:
        piece = super().__new__(cls, content)
        piece.offset = offset
        return piece

    def __reduce__(self) -> tuple[type[TextPiece], tuple[str, int]]:
        return type(self), (str(self), self.offset)


class PendingReply:
    """A message that was sent: iterate over it for the text of its reply as it streams, or await `reply`. turn_id: of its turn."""

    def __init__(self, session: SessionReader, agent: str, turn_id: str):
        self._session = session
        self._agent = agent
        self.turn_id = turn_id

    async def __aiter__(self) -> AsyncIterator[TextPiece]:
        async with aclosing(self._signals()) as signals:
            async for signal in signals:
                if signal.name == "text:delta":
                    delta: Any = signal.payload
                    yield TextPiece(delta["content"], delta["offset"])

    async def reply(self) -> Reply:
        """Return the reply once it is complete. Raises StoreUnavailable."""
        async with aclosing(self._signals()) as signals:
            async for _ in signals:
                pass
        return await self._session._reply(self._agent, await self._activation())

    async def stop(self, *, now: bool = False, grace_seconds: float = 10.0) -> None:
        """Stop the reply. The part that has come remains in the conversation, and is marked."""
        request = check_stop(now=now, grace_seconds=grace_seconds, reason="stopped", actor=None)
        await stop_turn(self._session._runtime, self.turn_id, request)

    async def _activation(self) -> int:
        turn = await self._session._runtime.reader.turn(self.turn_id)
        place = split_signal_id(turn.activation_id)
        assert place is not None
        return place[1]

    async def _signals(self) -> AsyncGenerator[Signal, None]:
        """The signals of the turn, up to its end."""
        activation = await self._activation()
        async with aclosing(self._session.follow(activation)) as signals:
            async for signal in signals:
                if signal.turn_id != self.turn_id:
                    continue
                yield signal
                if signal.name in ("agent:completed", "agent:failed") and signal.agent == self._agent:
                    return


class SessionReader:
    """The part of a session that needs no application: its history, its signals and its end."""

    def __init__(self, runtime: Runtime, run_id: str, agent: str, serving: asyncio.Task[None] | None = None):
        self._runtime = runtime
        self._serving = serving
        self.id = run_id
        self.agent = agent

    async def history(
        self, limit: int = 100, *, before: str | None = None, agent: str | None = None
    ) -> list[SessionMessage]:
        """Return the messages of the newest turns that have ended, the oldest first.

        limit: of turns; each has a message and its reply. before: a turn id: the turns that came before it, for the page before.
        """
        check_limit(limit)
        place = _NEWEST
        if before is not None:
            found = split_signal_id((await self._runtime.reader.turn(before)).activation_id)
            assert found is not None
            place = found[1]
        turns = await self._runtime.ledger.earlier_turns(self.id, self.agent if agent is None else agent, place, limit)
        return [message for turn in reversed(turns) if turn.cause.name == MESSAGE for message in _messages(turn)]

    async def follow(self, after: int = 0) -> AsyncGenerator[Signal, None]:
        """Iterate over the signals of the session's run after a position, up to its end, as they are recorded."""
        async with aclosing(self._runtime.follow(self.id, after)) as signals:
            while (signal := await self._while_serving(anext(signals, None))) is not None:
                yield signal

    async def stop(self) -> list[str]:
        """Stop the replies that are being written, also those to other processes; return the ids of their turns."""
        stopped = list[str]()
        request = check_stop(now=False, grace_seconds=10.0, reason="stopped", actor=None)
        for turn in await self._runtime.reader.active_turns(self.id):
            await stop_turn(self._runtime, turn.turn_id, request)
            stopped.append(turn.turn_id)
        return stopped

    async def close(self) -> None:
        """Let the session take no more messages. Its run ends as success after the replies to those that it has.

        A process that runs the turns of the session waits for that end. A second call has no effect.
        """
        run = await self._runtime.reader.run(self.id)
        if await close_session(self._runtime, self.id) and self._serving is not None:
            async with aclosing(self.follow(run.signal_count)) as signals:
                async for _ in signals:
                    pass

    async def _reply(self, agent: str, activation: int) -> Reply:
        [turn] = await self._runtime.ledger.earlier_turns(self.id, agent, activation + 1, 1)
        return _reply_of(turn)

    async def _while_serving(self, work: Awaitable[T]) -> T:
        """The result of `work`. Raises the error of this process's worker, which would never give it."""
        if self._serving is None:
            return await work
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._serving}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await self._serving  # it ends only by an error, which this raises
            return await task
        finally:
            task.cancel()


class Session(SessionReader):
    """A conversation that outlives its processes. Any number of processes may open it and send at once.

    id: names it, and its run. agent: answers messages that name no other one. A second `send` with the same `message_id` and text, for example
    after a crash, sends nothing and returns the same reply.
    """

    def __init__(
        self, runtime: Runtime, workflow: Workflow, run_id: str, agent: str, serving: asyncio.Task[None] | None = None
    ):
        super().__init__(runtime, run_id, agent, serving)
        self._workflow = workflow

    async def send(
        self, text: str, *, message_id: str | None = None, files: Sequence[str | FileReference] = (), agent: str | None = None
    ) -> Reply:  # fmt: skip
        """Send a message, and return the reply to it. Arguments and errors are those of `post`."""
        return await (await self.post(text, message_id=message_id, files=files, agent=agent)).reply()

    async def post(
        self, text: str, *, message_id: str | None = None, files: Sequence[str | FileReference] = (), agent: str | None = None
    ) -> PendingReply:  # fmt: skip
        """Send a message without waiting for the reply. Messages of one agent are answered in the order in which they were sent.

        message_id: the key by which a repeated message is recognized. files: the https URLs of images and documents for the model.
        Raises Rejected (`run_ended`, `queue_full`, and `id_conflict` for a message id that another message has), InvalidInput.
        """
        name = self.agent if agent is None else agent
        spec = self._workflow.agents.get(name)
        if spec is None:
            raise NotFound(f"application {self._workflow.name} has no agent {safe_repr(name)}; "
                           f"{hint_of_agents(str(name), self._workflow.agents)}", code="unknown_agent")  # fmt: skip
        turn_id = turn_of_message(self._runtime.world, self.id, message_id)
        await MessageClient.on(self._runtime).enqueue(
            self.id, name, message_payload(text, files), name=MESSAGE, turn_id=turn_id, priority=PRIORITIES[spec.priority], pool=spec.pool,
            max_attempts=spec.max_attempts, ttl_seconds=spec.ttl_seconds, result_fields=spec.result_fields, budget=spec.budget,
        )  # fmt: skip
        return PendingReply(self, name, turn_id)


@asynccontextmanager
async def open_session(
    runtime: Runtime, workflow: Workflow, run_id: str | None = None, *, agent: str | None = None, state: Any = None,
    worker: bool = True, concurrency: int = 16, lease_seconds: float = 30.0, record: RecordingOptions | None = None,
) -> AsyncIterator[Session]:  # fmt: skip
    """Open a session; see `Heliograph.session`."""
    session = await session_on(runtime, workflow, run_id, agent=agent, state=state, record=record)
    if not worker:
        yield session
        return
    async with served_run(runtime, workflow, session.id, concurrency, lease_seconds) as serving:
        yield Session(runtime, workflow, session.id, session.agent, serving)


async def session_on(
    runtime: Runtime, workflow: Workflow, run_id: str | None = None, *, agent: str | None = None, state: Any = None,
    record: RecordingOptions | None = None,
) -> Session:  # fmt: skip
    """Start a session, or find it. Workers in other processes run its turns."""
    chosen = _agent_of(workflow, agent)
    name, _ = await runtime.start(workflow, state, run_id, record=record, is_session=True)
    return Session(runtime, workflow, name, chosen)


def _agent_of(workflow: Workflow, agent: str | None) -> str:
    """The agent that answers the messages of a session: the given one, or the only one, or the only one that calls a model."""
    if agent is not None:
        if agent not in workflow.agents:
            raise NotFound(f"application {workflow.name} has no agent {safe_repr(agent)}; {hint_of_agents(str(agent), workflow.agents)}",
                           code="unknown_agent")  # fmt: skip
        return agent
    found = [spec.name for spec in workflow.agents.values() if spec.prompt is not None]
    found = found if len(found) == 1 else list(workflow.agents)
    if len(found) != 1:
        raise InvalidInput(f"application {workflow.name} has several agents; name the one that answers: agent={found[0]!r}",
                           code="required_field", path="/agent")  # fmt: skip
    return found[0]


def _messages(turn: EarlierTurn) -> list[SessionMessage]:
    cause = turn.cause.payload
    return [SessionMessage("user", text_of_message(cause), turn.turn_id, None, files_of_message(cause)),
            SessionMessage("assistant", reply_text(turn), turn.turn_id, turn.outcome)]  # fmt: skip


def _reply_of(turn: EarlierTurn) -> Reply:
    error = turn.content.get("error") if isinstance(turn.content, dict) else None
    output = (
        read_output(turn.content) if turn.outcome in ("success", "partial") and isinstance(turn.content, dict) else None
    )
    return Reply(reply_text(turn), output, turn.outcome, turn.turn_id, error)

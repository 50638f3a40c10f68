"""The processes that check turns, each one turn at a time. A process that exceeds the time limit of a turn is replaced."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

import msgspec

from heliograph.errors import SetupError
from heliograph.ledger.open_turns import UnreadableTurn
from heliograph.upgrade.divergence import Kind, TurnDivergence
from heliograph.upgrade.turn_process import Answer, CheckRequest

_ANSWER_BYTES_MAX = 2**24

OnResult = Callable[[TurnDivergence | None], None]


async def check_turns(
    turns: AsyncIterator[CheckRequest | UnreadableTurn], start: Sequence[str], first_line: bytes, on_result: OnResult, *, count: int,
    timeout_seconds: float,
) -> None:  # fmt: skip
    """Check all turns in `count` processes; call `on_result` for each, in any order. At most `count` turns are taken ahead.

    start: the command of a process. first_line: its first request. Raises SetupError if a process cannot load the application.
    """
    taking = asyncio.Lock()  # an iterator has one caller at a time

    async def work() -> None:
        checker = _Checker(start, first_line, timeout_seconds)
        try:
            while True:
                async with taking:
                    request = await anext(turns, None)
                if request is None:
                    return
                on_result(_unreadable(request) if isinstance(request, UnreadableTurn) else await checker.check(request))
        finally:
            await checker.kill()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


class _Checker:
    """One process, started at its first turn."""

    def __init__(self, start: Sequence[str], first_line: bytes, timeout_seconds: float):
        self._start = start
        self._first_line = first_line
        self._timeout_seconds = timeout_seconds
        self._process: Process | None = None
        self._is_used = False  # the process has checked a turn

    async def check(self, request: CheckRequest) -> TurnDivergence | None:
        if self._process is None:
            self._process = await self._started()
        process = self._process
        try:
            async with asyncio.timeout(self._timeout_seconds):
                answer = await _answer(process, msgspec.json.encode(request))
        except TimeoutError:
            await self.kill()
            return _failed(request, "deadline", f"the code was not done after {self._timeout_seconds:g} s")
        if answer is None:
            code = await process.wait()
            self._process = None
            if self._is_used:  # a thread of an earlier turn may have ended it
                return await self.check(request)
            return _failed(request, "exit", f"the code ended the process with exit code {code}")
        self._is_used = True
        return answer.divergence

    async def _started(self) -> Process:
        process = await asyncio.create_subprocess_exec(
            *self._start, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=_ANSWER_BYTES_MAX
        )
        answer = await _answer(process, self._first_line)
        if answer is not None and answer.problem is None:
            self._is_used = False
            return process
        problem = f"it ended with exit code {await process.wait()}" if answer is None else str(answer.problem)
        raise SetupError(f"a process for the check could not load the application: {problem}", code="import_failed")

    async def kill(self) -> None:
        """End the process at once. It has nothing to lose."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _answer(process: Process, line: bytes) -> Answer | None:
    """The answer to a line; None if the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(line + b"\n")
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        return None
    found = await process.stdout.readline()
    return msgspec.json.decode(found, type=Answer) if found.endswith(b"\n") else None


def _failed(request: CheckRequest, kind: Kind, message: str) -> TurnDivergence:
    claimed = request.turn.claimed
    return TurnDivergence(kind, claimed.run_id, claimed.turn_id, claimed.agent, message)


def _unreadable(turn: UnreadableTurn) -> TurnDivergence:
    return TurnDivergence("unreadable", turn.run_id, turn.turn_id, turn.agent, turn.message)

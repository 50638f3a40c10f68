"""`python -m bench.long_session [MESSAGES]`: what a message costs at the beginning and at the end of a long session, with kills and stops.

A process sends messages, each after the reply to the one before. A worker in another process answers them with a model that answers at once, and is
killed in the middle (`kill -9`). At the end a reply is stopped, the session is followed from its start and read back, and each message must have
one reply, in order. Prints bytes and CPU time per message for each fifth of the messages, and the ratios of the last fifth to the first.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import asyncpg

from bench.long_session_app import ENDLESS, REPLY, app
from bench.meter.processes import CALLER, SERVER, WORKER, measuring
from bench.own_server import on_own_server
from heliograph import Client, open_runtime
from heliograph.client.session import PendingReply, Session, open_session
from heliograph.config import Settings
from heliograph.ledger.install import install

APPLICATION = Path(__file__).with_name("long_session_app.py")
RUN = "long"
LEASE_SECONDS = 2.0
PAGE = 500  # turns of the history that are read at once


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one message, on average. log_bytes: of its signals. wal_bytes: of the server's write-ahead log. Times are CPU time."""

    log_bytes: float
    wal_bytes: float
    server_ms: float
    worker_ms: float
    caller_ms: float

    def ratios_to(self, other: Cost) -> dict[str, float]:
        return {f.name: getattr(self, f.name) / (getattr(other, f.name) or 1.0) for f in fields(self)}


@dataclass(frozen=True, slots=True)
class Talk:
    """A session that has been measured. costs: of each fifth of its messages. followed_ms: CPU time per thousand signals, of each half of its log."""

    messages: int
    costs: list[Cost]
    signals: int
    followed_ms: tuple[float, float]
    seconds: float

    def ratios(self) -> dict[str, float]:
        """Of the last fifth to the first, and of the second half of the log to the first."""
        return {**self.costs[-1].ratios_to(self.costs[0]), "followed_ms": self.followed_ms[1] / self.followed_ms[0]}


def text_of(n: int) -> str:
    return f"message {n:06} " + "about the weather " * 5


@asynccontextmanager
async def worker_process(url: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run a worker in a process of its own, which dies with `kill -9` at the end of the block."""
    command = [
        sys.executable,
        "-m",
        "heliograph",
        "worker",
        "start",
        f"{APPLICATION}:app",
        "--lease",
        str(LEASE_SECONDS),
    ]
    process = subprocess.Popen(command, env=_environment(url), stderr=subprocess.DEVNULL)  # noqa: ASYNC220, S603  our own
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def talk(url: str, messages: int) -> Talk:
    """Hold the session on a database with the schema. Raises AssertionError for a message without its reply, or with two."""
    began, fifth, costs = time.monotonic(), messages // 5, list[Cost]()
    connection = await asyncpg.connect(url)
    async with (
        open_runtime(Settings(database_url=url)) as runtime,
        open_session(runtime, app.workflow, RUN, worker=False) as session,
    ):
        async with worker_process(url) as process:
            await session.send("The worker has started.")
            costs += [await _measured(connection, session, n * fifth, fifth) for n in range(2)]
            pending = await _kill(session, process)
        async with worker_process(url):
            await _answer_after_the_kill(pending)
            costs += [await _measured(connection, session, n * fifth, fifth) for n in range(2, 5)]
            await _stop_a_reply(session)
            await _check_history(session, fifth * 5)
            _check_reopened(url)
            await session.close()
            signals, followed_ms = await _follow(Client.on(runtime))
    await connection.close()
    return Talk(fifth * 5, costs, signals, followed_ms, time.monotonic() - began)


async def _measured(connection: asyncpg.Connection, session: Session, first: int, count: int) -> Cost:
    """Send messages, each after the reply to the one before."""
    backend = await connection.fetchval("select pg_backend_pid()")
    log_before, wal_before = await _sizes(connection)
    with measuring(backend, os.getpid()) as spent:
        for n in range(first, first + count):
            assert (await session.send(text_of(n))).text == REPLY.format(text_of(n))
    log, wal = await _sizes(connection)
    times = [1000 * spent.by_role.get(role, 0.0) / count for role in (SERVER, WORKER, CALLER)]
    return Cost((log - log_before) / count, (wal - wal_before) / count, *times)


async def _sizes(connection: asyncpg.Connection) -> tuple[int, int]:
    """The bytes of the session's signals, and of the write-ahead log so far."""
    log = await connection.fetchval(
        "select sum(octet_length(entries::text)) from heliograph.signals where run_id = $1", RUN
    )
    wal = await connection.fetchval("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
    return int(log), int(wal)


async def _kill(session: Session, process: subprocess.Popen[bytes]) -> list[PendingReply]:
    """Kill the worker while it writes a reply that has no end, and while two more messages wait."""
    pending = [await session.post(text) for text in (ENDLESS, "First in the queue.", "Second in the queue.")]
    async for _ in pending[0]:  # the first piece of the reply
        process.send_signal(signal.SIGKILL)
        break
    return pending


async def _answer_after_the_kill(pending: list[PendingReply]) -> None:
    """Stop the reply that the killed worker was writing. Another worker answers the messages behind it."""
    await pending[0].stop()
    assert (await pending[0].reply()).was_stopped
    texts = [(await each.reply()).text for each in pending[1:]]
    assert texts == [REPLY.format("First in the queue."), REPLY.format("Second in the queue.")]


async def _stop_a_reply(session: Session) -> None:
    """Stop the session while it writes a reply, of which a part has come. The part remains."""
    pending = await session.post(ENDLESS)
    async for _ in pending:
        break
    assert await session.stop() == [pending.turn_id]
    reply = await pending.reply()
    assert reply.was_stopped
    assert REPLY.format(ENDLESS).startswith(reply.text)
    assert reply.text


async def _check_history(session: Session, messages: int) -> None:
    """Read the whole conversation, page by page: each message once, with its reply."""
    texts, before = list[tuple[str, str]](), None
    while page := await session.history(PAGE, before=before):
        texts[:0] = [(page[n].text, page[n + 1].text) for n in range(0, len(page), 2)]
        before = page[0].turn_id
    sent = [text_of(n) for n in range(messages)]
    found = [(said, reply) for said, reply in texts if said.startswith("message ")]
    assert found == [(text, REPLY.format(text)) for text in sent]


def _check_reopened(url: str) -> None:
    """Explain the run with one command, and continue the conversation with another one, which also runs the turn."""
    shown = json.loads(_helio(url, "run", "show", RUN, "--json"))
    assert (shown["status"], shown["open_turns"]) == ("running", 0), shown
    assert _helio(url, "chat", f"{APPLICATION}:app", RUN, text="Still there?\n") == REPLY.format("Still there?") + "\n"


def _helio(url: str, *arguments: str, text: str = "") -> str:
    return subprocess.run(  # noqa: S603  our own
        [sys.executable, "-m", "heliograph", *arguments], input=text, env=_environment(url), text=True, check=True, stdout=subprocess.PIPE,
        timeout=60,
    ).stdout  # fmt: skip


def _environment(url: str) -> dict[str, str]:
    return {**os.environ, "HELIOGRAPH_DATABASE_URL": url, "PYTHONPATH": str(APPLICATION.parent.parent)}


async def _follow(client: Client) -> tuple[int, tuple[float, float]]:
    """Follow the closed session from its start; return the number of its signals, and the CPU time per thousand of each half."""
    last = 0
    async for each in client.follow(RUN):
        last = each.seq
    took = []
    for after, upto in ((0, last // 2), (last // 2, last)):
        began, seqs = time.process_time(), list[int]()
        async for each in client.follow(RUN, after=after):
            seqs.append(each.seq)
            if each.seq == upto:
                break
        assert seqs == list(range(after + 1, upto + 1))
        took.append(1e6 * (time.process_time() - began) / len(seqs))
    return last, (took[0], took[1])


async def _main(url: str, messages: int) -> Talk:
    connection = await asyncpg.connect(url)
    await install(connection)
    # how many full pages a commit writes depends on the time since the last checkpoint
    await connection.execute("alter system set full_page_writes = off")
    await connection.execute("select pg_reload_conf()")
    await connection.close()
    return await talk(url, messages)


def main() -> int:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    found = on_own_server("session", lambda url: _main(url, messages))
    print(f"{found.messages} messages, {found.signals} signals, {found.seconds:.0f} s")
    for n, cost in enumerate(found.costs, 1):
        print(f"  fifth {n}: " + "  ".join(f"{f.name} {getattr(cost, f.name):,.2f}" for f in fields(cost)))
    print(f"  followed: {found.followed_ms[0]:.1f} and {found.followed_ms[1]:.1f} ms of CPU time per 1,000 signals")
    print(json.dumps({"ratios": {key: round(ratio, 3) for key, ratio in found.ratios().items()}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Helpers of the kernel tests: calls with a chosen time, and the items of these calls."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from heliograph.ledger.kernel import KERNEL, KernelFunction

START = datetime(2030, 1, 1, tzinfo=UTC)
TARGET = "newsroom"
DELIVERABLE = "task.deliverable"

Item = dict[str, Any]
_projects = itertools.count(1)


def new_project() -> str:
    return f"project-{os.getpid()}-{next(_projects)}"


async def connect(url: str) -> asyncpg.Connection:
    """Connect with JSON decoded by `json`, and with a timeout for locks."""
    connection = await asyncpg.connect(url, server_settings={"lock_timeout": "10s"})
    await convert_json(connection)
    return connection


async def convert_json(connection: asyncpg.Connection) -> None:
    """Convert JSON of this connection with `json`, apart from values that are `Encoded`."""
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(kind, schema="pg_catalog", encoder=_dumped, decoder=json.loads)


class Encoded(str):
    """JSON that is encoded already: null among the values of an array is the value null."""


def _dumped(value: Any) -> str:
    return value if isinstance(value, Encoded) else json.dumps(value)


def encoded(value: Any) -> Encoded:
    return Encoded(json.dumps(value))


def answer_of(definition: KernelFunction, rows: Sequence[Any]) -> Any:
    """The answer in the rows of a connection that decodes JSON itself."""
    if definition.returns:
        return [{key: value for key, value in row.items() if value is not None} for row in rows]
    return rows[0][0]


class Connections:
    """Open connections to one database, which the tests reuse with a reset session."""

    def __init__(self, url: str):
        self._url = url
        self._idle: list[asyncpg.Connection] = []

    async def take(self) -> asyncpg.Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await connect(self._url)

    async def release(self, connection: asyncpg.Connection) -> None:
        """Keep a connection for the next test, unless it is closed, broken, in a transaction or busy."""
        try:
            if connection.is_closed() or connection.is_in_transaction():
                raise asyncpg.InterfaceError("not in a state to be used again")
            await connection.execute("reset session authorization; select pg_stat_force_next_flush()")
            await connection.reset(timeout=5)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            connection.terminate()
        else:
            self._idle.append(connection)

    async def close(self) -> None:
        for connection in self._idle:
            await connection.close()


def as_id(text: str) -> str:
    """Turn a text into a valid id, without colons and control characters."""
    return re.sub(r"[\x01-\x1f:\x7f-\x9f]", "_", text)


# ── Items, as the kernel takes them ───────────────────────────────────────────────────────────


def draft(name: str, parent: str | int | None = None, **fields: Any) -> Item:
    return {"name": name, "parent": parent, **fields}


def activation(agent: str, turn_id: str, position: int, cause: Any = 0, **fields: Any) -> Item:
    """Build an activation. position: the index of its agent:activated among the drafts of the call."""
    limits = {"priority": 1, "max_attempts": 3, "ttl_seconds": 600}
    return {"agent": agent, "turn_id": turn_id, "cause": cause, "activation": position, **limits, **fields}


def woken(wakes: Mapping[str, str], **fields: Any) -> tuple[list[Item], list[Item]]:
    """Build the drafts and activations for {turn id: agent}, all caused by draft 0."""
    drafts = [draft("agent:activated", 0, agent=agent, payload={"agent": agent}) for agent in wakes.values()]
    return drafts, [activation(agent, turn, n, **fields) for n, (turn, agent) in enumerate(wakes.items(), 1)]


def run_item(run_id: str, agents: Sequence[str], wakes: Mapping[str, str], **fields: Any) -> Item:
    drafts, activations = woken(wakes, **fields)
    return {
        "run_id": run_id, "target": TARGET, "request_hash": f"hash of {run_id}", "agents": list(agents),
        "signals": [draft("workflow:start", payload={"state": {}}), *drafts],
        "reaction": {"state": {}, "memory": {}, "activations": activations},
    }  # fmt: skip


def ending(
    claimed: Item, *, version: int | None = None, outcome: str = "success", wakes: Mapping[str, str] | None = None,
    ends: str | None = None, **reaction: Any,
) -> Item:  # fmt: skip
    """Build the item that finishes a claimed turn. wakes: {turn id: agent}. ends: the outcome of the run if it ends, too."""
    drafts, activations = woken(wakes or {})
    signals = [draft("agent:completed", claimed["activation_id"], agent=claimed["agent"]), *drafts]
    if ends:
        signals.append(draft("workflow:end", 0))
        reaction |= {"status": "ended", "outcome": ends}
    return {
        "agent_id": claimed["agent_id"], "turn_id": claimed["turn_id"], "epoch": claimed["epoch"], "outcome": outcome,
        "content": {"text": "done"}, "version": claimed["run"]["version"] if version is None else version,
        "signals": signals, "reaction": {"activations": activations, **reaction},
    }  # fmt: skip


def following(turns: Sequence[Item], **last: Any) -> list[Item]:
    """Build the items that finish turns of one run, each of which follows the one before. last: the reaction of the last one."""
    items: list[Item] = []
    for n, claimed in enumerate(turns):
        more = last if n == len(turns) - 1 else {}
        item = ending(claimed, version=claimed["run"]["version"] + n, **{"memory": {"turns": n + 1}, **more})
        items.append(item | ({"follows": items[-1]["turn_id"]} if items else {}))
    return items


def turn_item(claimed: Item, *signals: Item, signals_emitted: int = 0, **fields: Any) -> Item:
    """Build an item of a claimed turn, with its signals if it has any."""
    names = {key: claimed[key] for key in ("agent_id", "turn_id", "epoch")}
    appended = {"signals_emitted": signals_emitted, "signals": list(signals)} if signals else {}
    return {**names, **appended, **fields}


def message(run_id: str, agent: str, turn_id: str, **fields: Any) -> Item:
    """Build a message that enqueues a turn from outside."""
    limits = {"priority": 1, "max_attempts": 3, "ttl_seconds": 600}
    return {
        "run_id": run_id,
        "agent": agent,
        "turn_id": turn_id,
        "name": "mail:came",
        "payload": {},
        **limits,
        **fields,
    }


def stopping(identifier: str, mode: str = "force", **fields: Any) -> Item:
    """Build a stop of a turn or a run; the prefix of the id decides."""
    return {"run_id" if identifier.startswith("run_") else "turn_id": identifier, "mode": mode, **fields}


# ── Calls ─────────────────────────────────────────────────────────────────────────────────────


class Kernel:
    """The kernel's functions on one connection, for one project. Only `wait` changes `now`. A service passes the server's
    time, an operator any time."""

    def __init__(self, connection: asyncpg.Connection, project: str, now: datetime = START):
        self.connection = connection
        self.project = project
        self.now = now
        self.is_corrupted = False

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    async def call(self, function: str, *args: Any, project: str | None = None) -> Any:
        definition = KERNEL[function]
        arguments = [self.project if project is None else project, *args]
        given = definition.values(arguments, encoded)
        if not definition.columns:
            given = [None if argument is None else value for argument, value in zip(arguments, given, strict=True)]
        times = [self.now] if definition.takes_now else []
        rows = await self.connection.fetch(definition.statement(f"${len(given) + 1}::timestamptz"), *given, *times)
        return answer_of(definition, rows)

    async def start(self, run_id: str, agents: Sequence[str], wakes: Mapping[str, str], **fields: Any) -> Item:
        return await self._one("start_runs", run_item(run_id, agents, wakes, **fields))

    async def enqueue(self, run_id: str, agent: str, turn_id: str, **fields: Any) -> Item:
        return await self._one("enqueue", message(run_id, agent, turn_id, **fields))

    async def claim(self, limit: int = 100, worker: str = "worker-1", lease: float = 30) -> list[Item]:
        claimed: list[Item] = await self.call("claim", [{"target": TARGET}], worker, limit, lease)
        return claimed

    async def claim_one(self, **fields: Any) -> Item:
        (claimed,) = await self.claim(1, **fields)
        return claimed

    async def running(self, run_id: str = "run_a", turn_id: str = "turn_a", **fields: Any) -> Item:
        """Start a run with a writer and a critic, and claim the writer's turn."""
        await self.start(run_id, ["writer", "critic"], {turn_id: "writer"}, **fields)
        (claimed,) = [each for each in await self.claim() if each["turn_id"] == turn_id]
        return claimed

    async def append(self, claimed: Item, *signals: Item, **fields: Any) -> Item:
        return await self._one("append", turn_item(claimed, *signals, **fields))

    async def renew(self, claimed: Item, lease: float = 30, **fields: Any) -> Item:
        (answer,) = await self.call("renew", [turn_item(claimed, **fields)], lease)
        return dict(answer)

    async def finish(self, claimed: Item, **fields: Any) -> Item:
        return await self._one("finish", ending(claimed, **fields))

    async def react(self, run_id: str, version: int, *signals: Item, **reaction: Any) -> Item:
        item = {"run_id": run_id, "version": version, "signals": list(signals), "reaction": reaction}
        return await self._one("react", item)

    async def stop(self, identifier: str, mode: str = "force", **fields: Any) -> Item:
        """Stop a turn or a run; the prefix of the id decides."""
        function = "stop_runs" if identifier.startswith("run_") else "stop"
        return await self._one(function, stopping(identifier, mode, **fields))

    async def publish(self) -> int:
        """Publish all rows of the outbox, and return their number."""
        keys = [event["key"] for event in await self.call("read_outbox", 1000)]
        marked: int = await self.call("mark_published", keys)
        return marked

    async def sweep(self, kind: str, limit: int | None = 100) -> Item:
        answer: Item = await self.call(f"sweep_{kind}", limit, *[""] * (kind == "stuck"))
        return answer

    async def pending(self, limit: int = 100) -> list[Item]:
        answer: list[Item] = await self.call("sweep_pending_reactions", [TARGET], limit)
        return answer

    async def checks(self, quiescent: bool = False) -> list[str]:
        """Return the short names of the doctor's findings, such as I1 and R4."""
        return [found["check"].split()[0] for found in await self.call("doctor", quiescent)]

    async def _one(self, function: str, item: Item) -> Item:
        (answer,) = await self.call(function, [item])
        return dict(answer)

    # ── Looking ──

    async def rows(self, table: str, columns: str = "*", where: str = "true", *args: Any) -> list[asyncpg.Record]:
        """Return rows of this project, ordered by the first requested column, or by all. `where` numbers its parameters from $2."""
        order = "x" if columns == "*" else "1"
        query = f"select {columns} from heliograph.{table} x where project_id = $1 and {where} order by {order}"
        return list(await self.connection.fetch(query, self.project, *args))

    async def row(self, table: str, key: str, value: str) -> asyncpg.Record:
        (found,) = await self.rows(table, "*", f"{key} = $2", value)
        return found

    async def head(self, agent_id: str) -> asyncpg.Record:
        return await self.row("agent_state_head", "agent_id", agent_id)

    async def turn(self, turn_id: str) -> asyncpg.Record:
        return await self.row("agent_turns", "agent_turn_id", turn_id)

    async def run(self, run_id: str) -> asyncpg.Record:
        return await self.row("runs", "run_id", run_id)

    async def names(self, run_id: str) -> list[str]:
        """Return the names of the signals in a run's log, in order."""
        return [row["name"] for row in await self.rows("signal_log", "seq, name", "run_id = $2", run_id)]

    async def harm(self, *statements: str) -> None:
        """Corrupt rows with a statement that bypasses triggers. `$1` is the project."""
        async with self.connection.transaction():
            await self.connection.execute(
                "set local search_path to heliograph; set local session_replication_role = replica"
            )
            for statement in statements:
                await self.connection.execute(statement, *[self.project] * ("$1" in statement))

    async def everything(self) -> dict[str, list[Item]]:
        """Return every row of the project by table. Two results are equal if nothing was written in between."""
        found = {table: sorted(map(dict, await self.rows(table)), key=repr) for table in TABLES}
        # a bucket from which nothing was taken is the same as none
        return {**found, "rate_buckets": [row for row in found["rate_buckets"] if row["full_at"]]}


Connect = Callable[[], Awaitable[Kernel]]
TABLES = (
    "runs", "agent_state_head", "agent_turns", "agent_inbox", "cards", "blobs", "boxes", "leases",
    "turn_waiting_tools", "outbox", "signals", "project_limits", "pruned", "memories", "budgets", "callbacks",
    "workers", "subscriptions", "subscription_runs", "signal_grants", "run_feed",
    "circuit_breakers", "circuit_calls", "rate_buckets", "run_checkpoints",
)  # fmt: skip

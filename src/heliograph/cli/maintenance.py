"""`helio db prune|limits|wires|breakers|rates`: delete old runs, show or change limits and wires, and show breakers and rates."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from heliograph.cli.existing_database import open_connection
from heliograph.cli.output import json_line, line, moment, note, table
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, NotFound
from heliograph.ledger.kernel import KERNEL

T = TypeVar("T")

NUMBER_MAX = 2**31 - 1
_MAY_BE_ZERO = ("depth_max", "deferrals_max")
_KINDS = ("runs", "turns", "signals", "cards", "boxes", "blobs", "tombstones", "memories", "breakers", "rates")


class _DryRun(Exception):
    """Ends the transaction of a dry run."""


def prune(options: Namespace) -> int:
    """Delete runs and turns that ended long ago. Returns 0, also if there are none."""
    counts = asyncio.run(_with(lambda connection, project: _prune(connection, project, options)))
    if options.json:
        json_line("pruned", {**counts, "dry_run": options.dry_run})
    else:
        counted = ", ".join(f"{counts[kind]} {kind}" for kind in _KINDS if counts[kind]) or "nothing"
        line(f"would delete {counted} in a first batch" if options.dry_run else f"deleted {counted}")
    return 0


def limits(options: Namespace) -> int:
    """Apply the changes, if any, and show the limits in force."""
    changes = dict(_change(text) for text in options.changes)
    values = asyncio.run(_with(lambda connection, project: _limits(connection, project, changes)))
    if options.json:
        json_line("limits", values)
    else:
        table(("LIMIT", "VALUE"), [(name, "none" if value is None else str(value)) for name, value in values.items()])
    return 0


def wires(options: Namespace) -> int:
    rows = asyncio.run(_with(lambda connection, project: _wires(connection, project, options.declare, options.forget)))
    if options.json:
        for row in rows:
            json_line("wire", {"wire": row["wire"], "declared_at": row["declared_at"]})
    elif rows:
        table(("WIRE", "SINCE"), [(safe_repr(row["wire"]), moment(row["declared_at"])) for row in rows])
    else:
        note("no wire: no events are published; helio db wires --declare postgres publishes them")
    return 0


def breakers(options: Namespace) -> int:
    """List the circuit breakers that have been open, or whose targets have failed."""
    return _list(
        options, "select type as signal, target, state, open_until, changed_at, failures, successes, trials from heliograph.circuit_overview"
        " where project_id = $1 order by type, target",
        ("TYPE", "TARGET", "STATE", "UNTIL", "FAILURES", "SUCCESSES", "TRIALS"),
        lambda row: (row["signal"], safe_repr(row["target"]), row["state"], moment(row["open_until"]), str(row["failures"]),
                     str(row["successes"]), str(row["trials"])),
        kind="breaker", none="no target behind a circuit breaker has failed",
    )  # fmt: skip


def rates(options: Namespace) -> int:
    """List the rate limits from which calls have taken tokens; reset one first, if the options name it."""
    if options.reset is not None:
        asyncio.run(_with(lambda connection, project: _reset_rate(connection, project, *options.reset)))
    return _list(
        options, "select kind, name, tokens_max, seconds, last_start, full_at from heliograph.rate_overview"
        " where project_id = $1 and last_start is not null order by kind, name",
        ("KIND", "NAME", "LIMIT", "LAST START", "FULL AT"),
        lambda row: (row["kind"], safe_repr(row["name"]), f"{row['tokens_max']} in {row['seconds']} s",
                     moment(row["last_start"]), moment(row["full_at"])),
        kind="rate", none="no call with a rate limit was made",
    )  # fmt: skip


def _list(
    options: Namespace, query: str, columns: Sequence[str], cells: Callable[[Mapping[str, Any]], Sequence[str]], *,
    kind: str, none: str,
) -> int:  # fmt: skip
    """Print the rows of a query whose $1 is the project: a table, or a JSON line each; `none` if there are no rows."""
    rows = asyncio.run(_with(lambda connection, project: connection.fetch(query, project)))
    if options.json:
        for row in rows:
            json_line(kind, dict(row))
    elif rows:
        table(columns, [cells(row) for row in rows])
    else:
        note(none)
    return 0


async def _prune(connection: Any, project: str, options: Namespace) -> dict[str, int]:
    before = datetime.now(UTC) - timedelta(seconds=options.older_than)
    total = dict.fromkeys(_KINDS, 0)
    has_more = True
    while has_more:
        try:
            async with connection.transaction():
                answer = await _call(connection, "prune", project, before, options.batch)
                if options.dry_run:
                    raise _DryRun
        except _DryRun:
            return {kind: answer[kind] for kind in _KINDS}
        total = {kind: total[kind] + answer[kind] for kind in _KINDS}
        has_more = answer["more"]
    return total


async def _limits(connection: Any, project: str, changes: Mapping[str, int | None]) -> dict[str, int | None]:
    values: dict[str, int | None] = await _call(connection, "set_limits", project, {})
    for name in changes:
        if name not in values:
            near = get_close_matches(name, values, 1)
            meant = f"did you mean {near[0]}?" if near else f"the limits are {', '.join(values)}"
            raise InvalidInput(f"there is no limit {safe_repr(name)}; {meant}", code="invalid_enum", path=name)
    if changes:
        values = await _call(connection, "set_limits", project, changes)
    return dict(sorted(values.items()))


async def _wires(
    connection: Any, project: str, declared: str | None, forgotten: str | None
) -> Sequence[Mapping[str, Any]]:
    if declared is not None:
        await connection.execute("select heliograph.declare_wire($1, $2, clock_timestamp())", project, declared)
    if forgotten is not None:
        answer = await connection.fetchval("select heliograph.forget_wire($1, $2)", project, forgotten)
        if msgspec.json.decode(answer) == "unknown":
            raise NotFound(
                f"project {project} has no wire {safe_repr(forgotten)}; helio db wires lists them", code="unknown_wire"
            )
    query = "select wire, declared_at from heliograph.wire_overview where project_id = $1 order by wire"
    rows: Sequence[Mapping[str, Any]] = await connection.fetch(query, project)
    return rows


async def _reset_rate(connection: Any, project: str, kind: str, name: str) -> None:
    reset = "select heliograph.reset_rate($1, $2, $3, clock_timestamp())"
    if msgspec.json.decode(await connection.fetchval(reset, project, kind, name)) == "unknown":
        raise NotFound(
            f"project {project} has no rate limit {safe_repr(kind)} {safe_repr(name)}; helio db rates lists them",
            code="unknown_rate",
        )


async def _call(connection: Any, function: str, *args: object) -> Any:
    """Call a kernel function on this connection, which may be in a transaction."""
    definition = KERNEL[function]
    values = definition.values(args, msgspec.json.encode)
    return definition.read(await connection.fetch(definition.statement(), *values))


async def _with(do: Callable[[Any, str], Awaitable[T]]) -> T:
    """Call `do` with a connection and the project. Raises NotFound (`no_data`) when there is no database."""
    from heliograph.ledger.pool import explain

    async with open_connection() as (connection, project):
        try:
            return await do(connection, project)
        except Exception as error:
            raise explain(error, "this command") from error


def _change(text: str) -> tuple[str, int | None]:
    """Parse `NAME=NUMBER` or `NAME=default`. Raises InvalidInput."""
    name, has_value, value = text.partition("=")
    if not has_value or not name:
        raise InvalidInput(
            f"a change must be NAME=NUMBER or NAME=default, not {safe_repr(text)}", code="usage", path=text
        )
    if value == "default":
        return name, None
    least = 0 if name in _MAY_BE_ZERO else 1
    if not (value.isascii() and value.isdecimal()) or len(value) > 10 or not least <= int(value) <= NUMBER_MAX:
        raise InvalidInput(f"{safe_repr(name)} must be a whole number from {least} to {NUMBER_MAX}, or default, not {safe_repr(value)}",
                           code="out_of_range", path=name)  # fmt: skip
    return name, int(value)

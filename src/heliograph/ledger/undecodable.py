"""Readers for several kinds of rows: a row that cannot be decoded does not affect the others, see `decoding`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from heliograph.codes import UNDECODABLE
from heliograph.ledger.decoding import MARK, holds_placeholder, problem_of, read_rows, undecodable
from heliograph.records import Callback, Event, PendingRun


def read_pending(rows: list[dict[str, Any]]) -> list[PendingRun]:
    """Runs with pending reactions. A run whose state or memory cannot be decoded has neither, and a failure with the reason.

    A payload that cannot be decoded is left as a placeholder: the turns that its signal wakes fail when they are claimed.
    """
    return [
        each if isinstance(each, PendingRun) else _spoiled_run(row, each.message)
        for row, each in zip(rows, read_rows(rows, PendingRun), strict=True)
    ]


def read_events(rows: list[dict[str, Any]]) -> tuple[list[Event], list[dict[str, Any]]]:
    """The events to publish, and the rows of commands that are left out, because a tool never gets incomplete arguments.

    A task event is published in any case, with a body that says what is wrong with its row.
    """
    events: list[Event] = []
    left_out: list[dict[str, Any]] = []
    for row in rows:
        if row["kind"] == "cmd":
            _mark_command(row)
    for row, event in zip(rows, read_rows(rows, Event), strict=True):
        if isinstance(event, Event):
            events.append(event)
        elif row["kind"] == "cmd":
            turn_id, _, call_id = row["key"].removeprefix("cmd:").partition(":")
            left_out.append({**row, "turn_id": turn_id, "call_id": call_id, MARK: problem_of(row) or event.message})
        else:
            events.append(msgspec.convert({**row, "body": {MARK: event.message}}, Event))
    return events, left_out


def read_callbacks(rows: list[dict[str, Any]]) -> list[Callback]:
    """Callbacks. A callback whose content cannot be decoded has no content, and `undecodable` gives the reason."""
    return [
        each if isinstance(each, Callback) else msgspec.convert({**row, "content": None, MARK: each.message}, Callback)
        for row, each in zip(rows, read_rows(rows, Callback), strict=True)
    ]


def _spoiled_run(row: dict[str, Any], why: str) -> PendingRun:
    run, signals = row["run"], row["signals"] or []
    documents = (run["state"], run["memory"])
    if all(isinstance(each, dict) and not holds_placeholder(each) for each in documents):
        with suppress(msgspec.ValidationError):
            return msgspec.convert({**row, "signals": signals}, PendingRun)
    run = {**run, "state": {}, "memory": {}}
    failure = {"code": UNDECODABLE, "message": why}
    return msgspec.convert({**row, "run": run, "signals": [], "failure": failure}, PendingRun)


def read_commands(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The commands that can be decoded, and the rows of the others."""
    for row in rows:
        _mark_command(row)
    return [row for row in rows if MARK not in row], [row for row in rows if MARK in row]


def _mark_command(row: dict[str, Any]) -> None:
    """Mark a command that no tool could read, although its JSON is sound."""
    body = row["body"]
    if not isinstance(body, dict):
        row.setdefault(MARK, "body is no object")
    elif not isinstance(body.get("arguments"), dict | None):
        row.setdefault(MARK, "body/arguments is no object")
    elif not isinstance(body.get("token"), str | None):
        row.setdefault(MARK, "body/token is no text")


def failed_call(row: dict[str, Any]) -> dict[str, Any]:
    """The report that fails the call of a command that cannot be decoded. Without its token the kernel rejects it."""
    body = row["body"] if isinstance(row["body"], dict) else {}
    token = body.get("token")
    return {
        "turn_id": row["turn_id"], "call_id": row["call_id"], "token": token if isinstance(token, str) else None,
        "status": "failed", "result": None, "actor": None,
        "error": {"code": UNDECODABLE, "message": f"its command cannot be decoded: {row[MARK]}", "recoverable": False},
    }  # fmt: skip


def checked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows as they are. Raises KernelRejected (UNDECODABLE) for the first one that cannot be decoded."""
    for row in rows:
        if (why := problem_of(row)) is not None:
            raise undecodable(str(row.get("card_id", "a row")), why)
    return rows

"""Handle rows that cannot be decoded: each kind of row has its own consequence, and other rows are not affected (see `decoding`)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from heliograph.codes import UNDECODABLE
from heliograph.ledger.decoding import MARK, holds_placeholder, problem_of, read_rows, undecodable
from heliograph.outbox_records import Callback, Event
from heliograph.records import PendingRun
from heliograph.turn.calls import GATEWAY


def read_pending(rows: list[dict[str, Any]]) -> list[PendingRun]:
    """Read runs with pending reactions. A run whose state or memory cannot be decoded gets a `failure` with the reason instead.

    A payload that cannot be decoded remains a placeholder: the turns that its signal activates fail when they are claimed.
    """
    return [
        each if isinstance(each, PendingRun) else _run_without_documents(row, each.message)
        for row, each in zip(rows, read_rows(rows, PendingRun), strict=True)
    ]


def read_events(rows: list[dict[str, Any]]) -> tuple[list[Event], list[dict[str, Any]]]:
    """Read events to publish. The second list has the rows of commands that no tool can read; they must not be published.

    A task event is published anyway, with the reason as its body.
    """
    events: list[Event] = []
    omitted: list[dict[str, Any]] = []
    for row in rows:
        if row["kind"] == "cmd":
            _mark_command(row)
    for row, event in zip(rows, read_rows(rows, Event), strict=True):
        if isinstance(event, Event):
            events.append(event)
        elif row["kind"] == "cmd":
            turn_id, _, call_id = row["key"].removeprefix("cmd:").partition(":")
            omitted.append({**row, "turn_id": turn_id, "call_id": call_id, MARK: problem_of(row) or event.message})
        else:
            events.append(msgspec.convert({**row, "body": {MARK: event.message}}, Event))
    return events, omitted


def read_callbacks(rows: list[dict[str, Any]]) -> list[Callback]:
    """Read callbacks. A callback whose content cannot be decoded has none, and the reason in `undecodable`."""
    return [
        each if isinstance(each, Callback) else msgspec.convert({**row, "content": None, MARK: each.message}, Callback)
        for row, each in zip(rows, read_rows(rows, Callback), strict=True)
    ]


def _run_without_documents(row: dict[str, Any], reason: str) -> PendingRun:
    run, signals = row["run"], row["signals"] or []
    documents = (run["state"], run["memory"])
    if all(isinstance(each, dict) and not holds_placeholder(each) for each in documents):
        with suppress(msgspec.ValidationError):
            return msgspec.convert({**row, "signals": signals}, PendingRun)
    run = {**run, "state": {}, "memory": {}}
    failure = {"code": UNDECODABLE, "message": reason}
    return msgspec.convert({**row, "run": run, "signals": [], "failure": failure}, PendingRun)


def read_commands(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Divide commands into those that can be decoded and the others."""
    for row in rows:
        _mark_command(row)
    return [row for row in rows if MARK not in row], [row for row in rows if MARK in row]


def _mark_command(row: dict[str, Any]) -> None:
    """Mark a command that is valid JSON, but that no tool could use."""
    body = row["body"]
    if not isinstance(body, dict):
        row.setdefault(MARK, "body is not an object")
    elif not isinstance(body.get("arguments"), dict | None):
        row.setdefault(MARK, "body/arguments is not an object")
    elif not isinstance(body.get("token"), str | None):
        row.setdefault(MARK, "body/token is not a string")
    elif row.get("tool") == GATEWAY and not _has_request(body):
        row.setdefault(MARK, "body/request is no envelope for a gateway")


def _has_request(body: dict[str, Any]) -> bool:
    """Whether the command of a call through a gateway has the URL, and the envelope to send."""
    request = body.get("request")
    envelope = request.get("envelope") if isinstance(request, dict) else None
    signal = envelope.get("signal") if isinstance(envelope, dict) else None
    payload = signal.get("payload") if isinstance(signal, dict) else None
    return (
        isinstance(body.get("gateway"), str)
        and isinstance(envelope, dict)
        and isinstance(envelope.get("id"), str)
        and isinstance(signal, dict)
        and isinstance(signal.get("type"), str)
        and isinstance(payload, dict)
        and isinstance(payload.get("correlation_id"), str)
    )


def failed_call(row: dict[str, Any]) -> dict[str, Any]:
    """Build the report that fails the call of a command that cannot be decoded. The kernel rejects it if the token is unreadable."""
    body = row["body"] if isinstance(row["body"], dict) else {}
    token = body.get("token")
    return {
        "turn_id": row["turn_id"], "call_id": row["call_id"], "token": token if isinstance(token, str) else None,
        "status": "failed", "result": None, "actor": None,
        "error": {"code": UNDECODABLE, "message": f"its command cannot be decoded: {row[MARK]}", "recoverable": False},
    }  # fmt: skip


def checked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows unchanged. Raises KernelRejected (UNDECODABLE) for the first row that cannot be decoded."""
    for row in rows:
        if (reason := problem_of(row)) is not None:
            raise undecodable(str(row.get("card_id", "a row")), reason)
    return rows

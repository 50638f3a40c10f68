"""Readers for several kinds of rows: a row that cannot be decoded does not affect the others, see `decoding`."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import msgspec

from heliograph.ledger.decoding import MARK, holds_placeholder, problem_of, read_rows, undecodable
from heliograph.records import Callback, Event, OwedRun

log = logging.getLogger("heliograph.ledger")


def read_owed(rows: list[dict[str, Any]]) -> list[OwedRun]:
    """Runs with pending reactions. A run whose state or memory cannot be decoded has neither, and says why.

    A payload that cannot be decoded is left as a placeholder: the turns that its signal wakes fail when they are claimed.
    """
    return [
        each if isinstance(each, OwedRun) else _spoiled_run(row, each.message)
        for row, each in zip(rows, read_rows(rows, OwedRun), strict=True)
    ]


def read_events(rows: list[dict[str, Any]]) -> tuple[list[Event], list[str]]:
    """The events to publish, and the keys of commands that are left out, because a tool never gets incomplete arguments.

    A task event is published in any case, with a body that says what is wrong with its row.
    """
    events: list[Event] = []
    left_out: list[str] = []
    for row, event in zip(rows, read_rows(rows, Event), strict=True):
        if isinstance(event, Event):
            events.append(event)
        elif row["kind"] == "cmd":
            left_out.append(row["key"])
        else:
            events.append(msgspec.convert({**row, "body": {MARK: event.message}}, Event))
    return events, left_out


def read_callbacks(rows: list[dict[str, Any]]) -> list[Callback]:
    """Callbacks. A callback whose content cannot be decoded has no content, and says why."""
    return [
        each if isinstance(each, Callback) else msgspec.convert({**row, "content": None, MARK: each.message}, Callback)
        for row, each in zip(rows, read_rows(rows, Callback), strict=True)
    ]


def _spoiled_run(row: dict[str, Any], why: str) -> OwedRun:
    run, signals = row["run"], row["signals"] or []
    documents = (run["state"], run["memory"])
    if all(isinstance(each, dict) and not holds_placeholder(each) for each in documents):
        with suppress(msgspec.ValidationError):
            return msgspec.convert({**row, "signals": signals}, OwedRun)
    run = {**run, "state": {}, "memory": {}}
    return msgspec.convert({**row, "run": run, "signals": [], MARK: why}, OwedRun)


def read_commands(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The commands that can be decoded. The others stay hidden from tools, and their calls time out."""
    for row in rows:
        if (why := problem_of(row)) is not None:
            log.error("the command of call %s of %s cannot be decoded, so no tool gets it and the call times out: %s",
                      row["call_id"], row["turn_id"], why)  # fmt: skip
    return [row for row in rows if problem_of(row) is None]


def checked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows as they are. Raises KernelRefused (UNDECODABLE) for the first one that cannot be decoded."""
    for row in rows:
        if (why := problem_of(row)) is not None:
            raise undecodable(str(row.get("card_id", "a row")), why)
    return rows

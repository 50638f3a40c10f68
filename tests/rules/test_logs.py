"""Levels by the names of loggers, and the fields of structured lines."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from heliograph.cli.logs import show_logs
from heliograph.errors import InvalidInput
from heliograph.execution.turn_logger import TurnLogger
from heliograph.redaction import keep_out
from heliograph.telemetry.logs import enter_turn, read_format, read_levels
from tests.kept_logging import kept_logging


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """The JSON lines of a log that shows everything from INFO on."""
    monkeypatch.setenv("HELIOGRAPH_LOG", "info,heliograph.worker=debug,heliograph.ledger=error")
    text = io.StringIO()
    with kept_logging("heliograph.worker", "heliograph.ledger"):
        show_logs(logging.WARNING, text)
        yield text


def lines(log: io.StringIO) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in json.loads(line).items() if key != "at"} for line in log.getvalue().splitlines()
    ]


def test_levels_apply_by_name(log: io.StringIO) -> None:
    for name in ("heliograph.worker", "heliograph.ledger", "heliograph.cli"):
        logging.getLogger(name).debug("debug of %s", name)
        logging.getLogger(name).warning("warning of %s", name)
    assert [line["message"] for line in lines(log)] == [
        "debug of heliograph.worker", "warning of heliograph.worker", "warning of heliograph.cli",
    ]  # fmt: skip


async def test_lines_of_two_turns_at_once_have_the_fields_of_their_own(log: io.StringIO) -> None:
    async def run(number: int) -> None:
        enter_turn(f"run_{number}", f"turn_{number}", "writer")
        await asyncio.sleep(0)
        logging.getLogger("heliograph.execution").info("works")
        await asyncio.gather(child())

    async def child() -> None:
        logging.getLogger("heliograph.tools").info("a task of the turn")

    await asyncio.gather(run(1), run(2))
    logging.getLogger("heliograph.worker").info("no turn")
    for number in (1, 2):
        own = {"level": "info", "run": f"run_{number}", "turn": f"turn_{number}", "agent": "writer"}
        assert [line for line in lines(log) if line.get("turn") == f"turn_{number}"] == [
            {**own, "logger": "heliograph.execution", "message": "works"},
            {**own, "logger": "heliograph.tools", "message": "a task of the turn"},
        ]
    assert lines(log)[-1] == {"level": "info", "logger": "heliograph.worker", "message": "no turn"}


def test_line_of_an_agent_has_the_fields_of_its_turn_and_phase(log: io.StringIO) -> None:
    fields = {"run_id": "r", "turn_id": "t", "agent_id": "r/writer", "agent": "writer", "phase": "act", "attempt": 1}
    TurnLogger("writer", fields, lambda: False).warning("slow")
    assert lines(log) == [
        {"level": "warning", "logger": "heliograph.agents.writer", "message": "slow", "run": "r", "turn": "t",
         "agent": "writer", "phase": "act"},
    ]  # fmt: skip


@pytest.mark.proves("S13")
def test_secret_in_the_log_of_an_agent_is_replaced_by_stars(log: io.StringIO) -> None:
    keep_out('canary"with-quote-81c2')
    TurnLogger("writer", {"run_id": "r", "turn_id": "t"}, lambda: False).warning('it is canary"with-quote-81c2')
    assert [line["message"] for line in lines(log)] == ["it is ***"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [("loud", "there is no level loud"), ("inf", "did you mean info?"), ("urllib3=debug", "urllib3 is not the name"), ("=debug", "is not the name"),
     ("heliograph.=debug", "is not the name"), ("heliograph.worker=", "there is no level")],
)  # fmt: skip
def test_malformed_level_is_rejected_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_levels(text)
    assert (caught.value.code, caught.value.path) == ("invalid_log_level", "HELIOGRAPH_LOG")
    assert problem in caught.value.message


def test_levels_are_read_by_name_and_in_any_case() -> None:
    assert read_levels(" INFO , heliograph.worker = Debug,") == {
        "heliograph": logging.INFO,
        "heliograph.worker": logging.DEBUG,
    }
    assert read_levels("") == {}
    assert (read_format(""), read_format("json")) == ("text", "json")
    with pytest.raises(InvalidInput, match="HELIOGRAPH_LOG_FORMAT must be text or json, not xml"):
        read_format("xml")

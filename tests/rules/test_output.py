"""Lines of the command line: no text of a log writes to the terminal, changes the order of its characters, or adds a line."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from heliograph.cli import errors, output
from heliograph.cli.logs import _JsonLines, _Lines
from heliograph.errors import InvalidInput

HOSTILE = {
    "escape": "\x1b[2J",
    "control sequence of one byte": "\x9b2J",
    "title by an operating system command": "\x1b]0;pwned\x07",
    "link": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "end of line": "a\noutcome  success",
    "carriage return": "denied\rgranted",
    "separator of lines": "a\u2028b\u0085c",
    "backspace": "no\b\byes",
    "override of the direction": "a\u202etxt.exe",
    "isolate": "\u2066x\u2069",
    "tag": "\U000e0041",
    "half of a pair": "\ud800",
}  # fmt: skip
HALF = "half of a pair"  # neither the log nor JSON contains one
EACH = pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
EACH_OF_LOGS = pytest.mark.parametrize("text", [HOSTILE[name] for name in HOSTILE if name != HALF], ids=[name for name in HOSTILE if name != HALF])  # fmt: skip


@EACH
def test_line_is_one_line_of_printable_text(text: str) -> None:
    file = io.StringIO()
    output.line(f"<{text}>", file)
    shown = file.getvalue()
    assert shown[-1] == "\n"
    assert shown[:-1].isprintable()
    assert shown.startswith("<")


@EACH_OF_LOGS
def test_line_of_json_is_printable_and_has_the_same_value(text: str) -> None:
    file = io.StringIO()
    output.json_line(None, {"text": text, text: 1, "emoji": "\U0001f600"}, file)
    shown = file.getvalue()
    assert shown[:-1].isprintable()
    assert json.loads(shown) == {"text": text, text: 1, "emoji": "\U0001f600"}
    assert "\U0001f600" in shown


@EACH
def test_block_keeps_the_ends_of_its_lines_alone(text: str) -> None:
    file = io.StringIO()
    output.block(f"first\n{text}\nlast\n", file)
    first, *middle, last = file.getvalue().removesuffix("\n").split("\n")
    assert (first, last) == ("first", "last")
    assert all(each.isprintable() for each in middle)


@EACH_OF_LOGS
def test_errors_and_remarks_are_printable(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.note(text)
    error = InvalidInput(f"no file {text}", code="invalid_format", hint=text)
    errors.report(error, as_json=True)
    printed, reported = capsys.readouterr()
    assert all(each.isprintable() for each in (*printed.split("\n"), *reported.split("\n")))


@EACH
@pytest.mark.parametrize("formatter", [_Lines(), _JsonLines()], ids=["text", "json"])
def test_record_of_the_log_is_one_printable_line(text: str, formatter: Any) -> None:
    record = logging.LogRecord("heliograph.x", logging.WARNING, "x.py", 1, "agent %s failed", (text,), None)
    record.signal_id = text
    assert formatter.format(record).isprintable()


def test_traceback_of_a_record_has_lines_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_DEBUG", "1")
    error = ValueError("\x1b[2J")
    record = logging.LogRecord("heliograph.x", logging.ERROR, "x.py", 1, "failed", (), (ValueError, error, None))
    first, *rest = _Lines().format(record).split("\n")
    assert first.endswith("error: failed")
    assert rest == ["ValueError: \\x1b[2J"]

"""Each command with wrong input, without a terminal, in 60 columns, with NO_COLOR, and in a locale that is not UTF-8."""

from __future__ import annotations

import io
import json
import sys

import pytest

from heliograph.cli.dispatch import run_command
from tests.faces.test_cli_start import leaves

COMMANDS = sorted({each.prog.removeprefix("helio ") for each in leaves()} - {"sim"})  # helio sim parses its own options
COLUMNS = 60


def narrow_pipe(monkeypatch: pytest.MonkeyPatch) -> tuple[io.BytesIO, io.BytesIO]:
    """Stdout and stderr as in a narrow pipe of a process with an ASCII locale and NO_COLOR."""
    out, err = io.BytesIO(), io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(err, encoding="ascii"))
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("LC_ALL", "C")
    return out, err


def test_each_command_rejects_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, one error that names the command, one JSON object of type `error`, and no traceback."""
    for command in COMMANDS:
        out, err = narrow_pipe(monkeypatch)
        assert run_command([*command.split(), "--nonsense-ü", "\x1b[2J", "--json"]) == 2, command
        shown, errors = out.getvalue().decode(), err.getvalue().decode()
        assert json.loads(shown)["type"] == "error", command
        assert errors.startswith("error: "), command
        assert not {"\x1b", "\x9b"} & {*shown, *errors}, command
        assert "Traceback" not in errors


def test_help_of_each_command_has_lines_of_60_columns_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = narrow_pipe(monkeypatch)
    for command in COMMANDS:
        assert run_command([*command.split(), "--help"]) == 0, command
    text = out.getvalue().decode()
    assert "\x1b" not in text
    # the usage and the examples stand in one line each; argparse breaks all other text
    too_long = [line for line in text.splitlines() if len(line) > COLUMNS]
    assert [line for line in too_long if not line.startswith(("usage:", "example:", "       "))] == []


def test_each_noun_without_a_verb_is_misused(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow_pipe(monkeypatch)
    nouns = {command.split()[0] for command in COMMANDS if " " in command}
    for noun in sorted(nouns):
        assert run_command([noun]) == 2, noun

"""`helio run` asks the questions of a run at its terminal: forms, the conversation, and a real pseudo-terminal."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from heliograph.cli import ask_person
from heliograph.cli.ask_person import Asker
from heliograph.cli.form_input import object_of, value_of
from heliograph.client.human_tasks import HumanTask
from heliograph.errors import InvalidInput, Rejected
from heliograph.execution.packed_commit import as_jsonb
from heliograph.signals.form_fields import Field, fields_of, fields_text
from heliograph.types import Json
from tests.faces.cli_support import open_shell
from tests.faces.own_terminal import on_terminal

DESK = """
from pydantic import BaseModel
from heliograph import Context, Heliograph

app = Heliograph("desk")


class Trip(BaseModel):
    to: str
    days: int


@app.agent(activate_on=["workflow:start"], updates="answers")
async def planner(ctx):
    trip = await ctx.ask("Where to?", form=Trip)
    leave = await ctx.approve("May I book?", arguments={"price": 9})
    return [trip.to, trip.days, leave.arguments["price"], bool(leave.by)]
"""


class Trip(BaseModel):
    to: str
    days: int
    class_: str | None = None
    is_return: bool = True


def test_form_of_a_model_is_asked_field_by_field() -> None:
    fields = fields_of(Trip.model_json_schema())
    assert [field.prompt for field in fields] == [
        "to (text)", "days (integer)", "class_ (text, may be empty)", "is_return (y or n, may be empty)",
    ]  # fmt: skip
    values = {field: value_of(field, text) for field, text in zip(fields, ["Oslo", "3", "first", "no"], strict=True)}
    assert object_of(values) == {"to": "Oslo", "days": 3, "class_": "first", "is_return": False}


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Car(BaseModel):
    color: Color
    roof: Color | None = None


def test_enum_of_a_model_is_asked_with_its_values() -> None:
    form = Car.model_json_schema()
    assert fields_text(form, 60) == "color (red or blue), roof (red or blue, may be empty)"
    assert [value_of(field, "blue") for field in fields_of(form)] == ["blue", "blue"]
    definitions: list[Json] = [{}, [], {"Color": 1}, {"Color": {"$ref": "#/$defs/Color"}}]
    for hostile in definitions:
        assert fields_text({**form, "$defs": hostile}, 60) == "color (JSON), roof (JSON, may be empty)"


def test_required_fields_are_asked_first_in_the_order_of_the_form() -> None:
    form = as_jsonb({
        "type": "object", "required": ["customer", "to", ["to"]],
        "properties": {"customer": {"type": "string"}, "to": {"type": "string"}, "days": {"type": "integer"}},
    })  # fmt: skip
    assert fields_text(form, 60) == "customer (text), to (text), days (integer, may be empty)"


def test_line_of_a_form_has_whole_options_if_it_is_not_limited() -> None:
    options = [f"option-{n}" for n in range(100)]
    form: Any = {"type": "object", "properties": {"n" * 90: {"enum": options}}, "required": ["n" * 90]}
    assert fields_text(form, 10_000) == f"{'n' * 90} ({' or '.join(options)})"
    assert len(fields_text(form, 50)) < 110


@pytest.mark.parametrize(
    ("form", "prompt", "text", "value"),
    [
        ({"type": "integer"}, "answer (integer)", " 7 ", 7),
        ({"type": "number"}, "answer (number)", "7.5", 7.5),
        ({"enum": ["red", 2]}, "answer (red or 2)", "2", 2),
        ({"enum": [True, None]}, "answer (true or null)", "true", True),
        ({"enum": ["red", "blue"]}, "answer (red or blue)", "2", "blue"),
        ({"enum": [["red"], {"n": 1}]}, 'answer (["red"] or {"n": 1})', "2", {"n": 1}),
        ({"type": "array"}, "answer (JSON)", "[1]", [1]),
        ({"type": "object", "properties": {}}, "answer (JSON)", "{}", {}),
        ({"$ref": "#/$defs/Trip"}, "answer (JSON)", "null", None),
    ],
)
def test_answer_that_is_no_object_is_one_line(form: dict[str, Any], prompt: str, text: str, value: object) -> None:
    [field] = fields_of(form)
    assert (field.prompt, object_of({field: value_of(field, text)})) == (prompt, value)


@pytest.mark.parametrize(("kind", "text"), [("integer", "x"), ("integer", "1.5"), ("integer", "true"), ("number", '"1"'), ("boolean", "?"), ("json", "{")])  # fmt: skip
def test_wrong_line_is_an_error_that_names_the_kind(kind: str, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        value_of(Field("n", kind), text)
    assert caught.value.message.startswith("type ")


class Screen:
    """A view that keeps what it prints."""

    def __init__(self) -> None:
        self.text = ""
        self.is_open = False

    def prompt(self, text: str) -> None:
        self.is_open = True
        self.text += text

    def note(self, text: str) -> None:
        self.text += f"{text}\n"

    def resume(self) -> None:
        self.is_open = False


class Answers:
    """What is reported. `rejects`: the errors of the next reports."""

    def __init__(self, *rejects: Exception) -> None:
        self.reported: list[tuple[object, ...]] = []
        self.rejects = list(rejects)

    def _report(self, *what: object) -> str:
        if self.rejects:
            raise self.rejects.pop(0)
        self.reported.append(what)
        return "applied"

    async def grant(self, turn: str, call: str, arguments: object, by: str | None) -> str:
        return self._report("grant", call, arguments)

    async def deny(self, turn: str, call: str, reason: str | None, by: str | None) -> str:
        return self._report("deny", call, reason)

    async def answer(self, turn: str, call: str, value: object, by: str | None) -> str:
        return self._report("answer", call, value)


def task(call: str, kind: Any = "decision", **further: Any) -> HumanTask:
    values: dict[str, Any] = {"arguments": {}, "may_edit": False, "options": (), "form": None}
    return HumanTask("turn_1", call, "r", "clerk", "ask", kind, "?", since=datetime(2026, 1, 1, tzinfo=UTC), deadline=None,
                     **values | further)  # fmt: skip


async def talk(answers: Answers, tasks: list[HumanTask], lines: list[str | None]) -> Screen:
    """Ask these questions, with these lines as input, until a read finds none."""
    screen, ended = Screen(), asyncio.Event()

    async def read_line() -> str | None:
        if not lines:
            ended.set()
            await asyncio.Event().wait()
        return lines.pop(0)

    asker = Asker(None, screen, read_line)  # type: ignore[arg-type]
    asker._approvals = answers  # type: ignore[assignment]
    asker.see(tasks)
    asking, end = asyncio.create_task(asker.run()), asyncio.create_task(ended.wait())
    await asyncio.wait([asking, end], return_when=asyncio.FIRST_COMPLETED)
    for each in (asking, end):
        each.cancel()
    await asyncio.gather(asking, end, return_exceptions=True)
    return screen


async def test_questions_are_asked_in_turn_and_again_until_the_answer_is_valid() -> None:
    answers = Answers()
    tasks = [task("c1"), task("c2"), task("c3", may_edit=True), task("c4", "answer"), task("c5", "answer", options=("red", "blue")),
             task("c6", "answer", form=Trip.model_json_schema()), task("c7")]  # fmt: skip
    lines: list[str | None] = ["", "perhaps", "Y", "n", "too dear", "e", "{", "e", '{"a": 1}', "", "Ann", "3", "blue",
                               "Oslo", "x", "3", "", "n"]  # fmt: skip
    screen = await talk(answers, tasks, lines)
    expected: list[tuple[object, ...]] = [
        ("grant", "c1", None), ("deny", "c2", "too dear"), ("grant", "c3", {"a": 1}), ("answer", "c4", "Ann"),
        ("answer", "c5", "blue"), ("answer", "c6", {"to": "Oslo", "days": 3, "class_": None, "is_return": False}),
    ]  # fmt: skip
    assert answers.reported == expected
    assert screen.text.count("clerk asks: ?") == 7
    assert "type y or n, not perhaps" in screen.text
    assert "type an integer, not x" in screen.text
    assert not screen.is_open


async def test_rejected_answer_is_asked_again_and_one_that_came_too_late_is_not() -> None:
    invalid = InvalidInput("it is invalid", code="invalid_answer")
    answers = Answers(invalid, Rejected("already denied", code="already_decided"))
    screen = await talk(answers, [task("c1", "answer"), task("c2"), task("c3")], ["a", "b", "y", None])
    assert screen.text.count("it is invalid") == screen.text.count("already denied") == 1
    assert answers.reported == [("grant", "c2", None)]


async def test_skipped_questions_remain_open_and_the_end_of_the_input_ends_the_conversation() -> None:
    answers = Answers()
    screen = await talk(answers, [task("c1"), task("c2"), task("c3")], ["/skip", None])
    assert answers.reported == []
    assert screen.text.endswith("nothing more is asked here\n")


@pytest.mark.proves("P-33")
async def test_question_that_is_answered_elsewhere_is_no_longer_asked() -> None:
    screen, answers, reads, reported = Screen(), Answers(), asyncio.Event(), asyncio.Event()

    async def read_line() -> str | None:
        if not reads.is_set():
            reads.set()
            await asyncio.Event().wait()
        if answers.reported:
            reported.set()
        return "y"

    asker = Asker(None, screen, read_line)  # type: ignore[arg-type]
    asker._approvals = answers  # type: ignore[assignment]
    asker.see([task("c1"), task("c2"), task("c3")])
    asking = asyncio.create_task(asker.run())
    async with asyncio.timeout(20):
        await reads.wait()
        asker.see([task("c2"), task("c3")])
        await reported.wait()
    asking.cancel()
    assert answers.reported[0] == ("grant", "c2", None)
    assert "answered elsewhere" in screen.text


def test_only_a_foreground_terminal_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not ask_person.may_ask()  # the tests have no terminal


@pytest.mark.more
@pytest.mark.proves("P-33")
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_run_asks_validates_and_grants_on_a_terminal(tmp_path: Path, database_url: str, term: str) -> None:
    (tmp_path / "desk.py").write_text(DESK)
    shell = open_shell(tmp_path, database_url)
    answers = {b"to (text)": b"Oslo\n", b"days (integer)": b"many\n", b"not many": b"3\n", b"grant it?": b"y\n"}
    code, screen = on_terminal(shell, answers, "run", "desk.py:app", "--run-id", "trip", term=term)
    assert code == 0, screen
    assert "waiting for a person: Where to?" in screen
    assert "type an integer, not many" in screen
    [row] = shell.rows("run", "show", "trip")
    assert row["state"]["answers"] == ["Oslo", 3, 9, True]


@pytest.mark.more
@pytest.mark.proves("P-34")
def test_run_in_a_pipe_or_with_no_ask_asks_nothing(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "desk.py").write_text(DESK)
    shell = open_shell(tmp_path, database_url)
    code, screen = on_terminal(shell, {b"--value JSON": b"\x03"}, "run", "desk.py:app", "--run-id", "trip", "--no-ask")
    assert (code, "planner asks" in screen) == (130, False)
    piped = shell.start("run", "desk.py:app", "--run-id", "trip")
    line = piped.read_until("--value JSON")
    turn, call = line.split()[3:5]
    shell.helio("approval", "deny", turn, call)
    assert piped.end() == 1
    assert "planner asks" not in piped.text
    assert json.loads(shell.helio("run", "show", "trip", "--json").stdout)["outcome"] == "failed"

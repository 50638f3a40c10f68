"""What people are asked, and what counts as their answer. Pure.

A question is the input of a call of kind `human`; a decision or an answer is its result. Both sides hold to this file:
whoever answers, who is told at once what does not fit, and the turn that waited, which trusts no result: it may have
been reported by anything. What is no clear yes is a no.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from heliograph.definitions.forms import problems_in, validator_of
from heliograph.errors import Denied, InvalidInput, ToolFailed, safe_repr
from heliograph.turn.calls import CallResult
from heliograph.types import Json, JsonObject

QUESTION_MAX = 10_000
NAME_MAX = 200
REASON_MAX = 2000


@dataclass(frozen=True, slots=True)
class Question:
    """wants: leave for something (`decision`), or an `answer`.

    arguments: what leave is asked for. may_edit: it may be given for other arguments. options: the answers there are, if
    they are given. form: the JSON Schema of the answer, or of edited arguments. may_answer: a decision in whose place the
    result itself may be told, as of a call that is in doubt.
    """

    wants: Literal["decision", "answer"]
    question: str
    arguments: JsonObject | None = None
    may_edit: bool = False
    options: tuple[str, ...] = ()
    form: JsonObject | None = None
    may_answer: bool = False

    def record(self) -> JsonObject:
        """The question as the call's input."""
        told: JsonObject = {"wants": self.wants, "question": self.question}
        if self.wants == "decision":
            told |= {"arguments": self.arguments or {}, "may_edit": self.may_edit}
            if self.may_answer:
                told["may_answer"] = True
        else:
            told["options"] = list(self.options)
        return told if self.form is None else {**told, "form": self.form}

    @classmethod
    def of(cls, recorded: Json) -> Question:
        """The question that was recorded."""
        found: Mapping[str, Any] = recorded if isinstance(recorded, dict) else {}
        return cls(
            "decision" if found.get("wants") == "decision" else "answer", str(found.get("question", "")),
            found.get("arguments"), found.get("may_edit") is True, tuple(found.get("options") or ()), found.get("form"),
            found.get("may_answer") is True,
        )  # fmt: skip

    def problems(self, value: Json) -> list[str]:
        """Why `value` is no answer, or why these arguments may not stand in for those asked for; empty when it may."""
        if self.options and value not in self.options:
            return [f"it is one of {', '.join(self.options)}, not {safe_repr(value)}"]
        if self.form is not None:
            return problems_in(validator_of("the form", self.form, "/form"), value, "it")
        if self.may_answer:
            return []
        is_right = isinstance(value, dict if self.wants == "decision" else str)
        return (
            []
            if is_right
            else [f"it is {'an object' if self.wants == 'decision' else 'a text'}, not {safe_repr(value)}"]
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave that was given: for which arguments, and by whom, where that was told."""

    arguments: JsonObject
    by: str | None = None


def grant_from(question: Question, call_label: str, result: CallResult) -> Grant:
    """What came of a question that wants a decision, of a result that is a success or a failure.

    Raises Denied for everything that is no leave, also for leave to do what nobody was asked about.
    """
    decision = result.output if isinstance(result.output, dict) else {}
    by, wanted = _decided_by(decision), question.arguments or {}
    if result.status != "success" or decision.get("decision") != "grant":
        raise _denial(call_label, result)
    given = decision.get("arguments")
    if given is None or given == wanted:
        return Grant(wanted, by)
    if not question.may_edit:
        raise Denied(
            f"{call_label} was granted for other arguments than were asked for, which is not allowed", error={"by": by}
        )
    if not isinstance(given, dict):
        raise Denied(f"{call_label} was granted for arguments that are no object", error={"by": by})
    return Grant(given, by)


def answer_of(question: Question, call_label: str, result: CallResult) -> Json:
    """What came of a question that wants an answer. Raises Denied, ToolFailed for what is no answer to it."""
    decision = result.output if isinstance(result.output, dict) else {}
    if result.status != "success" or decision.get("decision") == "deny":
        raise _denial(call_label, result)
    if "answer" not in decision:
        raise ToolFailed(f"{call_label} has a result without an answer: {safe_repr(result.output)}")
    if problems := question.problems(decision["answer"]):
        raise ToolFailed(safe_repr(f"the answer to {call_label} does not fit: {'; '.join(problems)}", REASON_MAX))
    return decision["answer"]


def timeout_message(result: CallResult, setting: str) -> str:
    """The message for a question that nobody answered in time: its text, the time, and the setting for that time."""
    why = (result.error or {}).get("message")
    return f"{why or 'nobody answered in time'}; {setting} sets how long that may take"


def check_question(text: Any) -> str:
    """Raises InvalidInput."""
    if not isinstance(text, str) or not text.strip() or len(text) > QUESTION_MAX:
        raise InvalidInput(f"a question is a text of 1 to {QUESTION_MAX} characters, not {safe_repr(text)}", code="wrong_type",
                           path="/question")  # fmt: skip
    return text


def _denial(call_label: str, result: CallResult) -> Denied:
    decision = result.output if isinstance(result.output, dict) else {}
    by = _decided_by(decision)
    if result.status == "success" and decision.get("decision") != "deny":
        return Denied(f"{call_label} was not granted: what was reported is no decision: {safe_repr(result.output)}")
    reason = decision.get("reason") or (result.error or {}).get("message")
    told = safe_repr(str(reason), REASON_MAX) if reason else None
    return Denied(f"{call_label} was denied{f' by {by}' if by else ''}{f': {told}' if told else ''}",
                  error={"by": by, "reason": told})  # fmt: skip


def _decided_by(decision: Mapping[str, Json]) -> str | None:
    by = decision.get("by")
    return safe_repr(by, NAME_MAX) if isinstance(by, str) and by else None

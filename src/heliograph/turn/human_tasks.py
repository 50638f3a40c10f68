"""Questions to people, and the validation of their answers. Pure.

A question is the input of a call of kind `human`; a decision or an answer is its result. The client validates an answer
when a person submits it. The waiting turn validates it again, because any program may have reported it. Everything except
a clear yes counts as a no.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from heliograph.definitions.forms import problems_in, validator_of
from heliograph.error_text import safe_repr
from heliograph.errors import Denied, InvalidInput, ToolFailed
from heliograph.turn.calls import CallResult
from heliograph.types import Json, JsonObject

QUESTION_MAX = 10_000
NAME_MAX = 200
REASON_MAX = 2000


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person. kind: `decision` for an approval, or `answer`. Only the record of a decision has `arguments`.

    arguments: those of the approval. may_edit: the person may change them. options: the possible answers. form: the JSON
    Schema of the answer, or of edited arguments. may_answer: the person may report the result itself in place of a decision,
    for a call in doubt.
    """

    kind: Literal["decision", "answer"]
    question: str
    arguments: JsonObject | None = None
    may_edit: bool = False
    options: tuple[str, ...] = ()
    form: JsonObject | None = None
    may_answer: bool = False

    def record(self) -> JsonObject:
        """The question as the call's input."""
        record: JsonObject = {"question": self.question}
        if self.kind == "decision":
            record |= {"arguments": self.arguments or {}, "may_edit": self.may_edit}
            if self.may_answer:
                record["may_answer"] = True
        else:
            record["options"] = list(self.options)
        return record if self.form is None else {**record, "form": self.form}

    @classmethod
    def of(cls, recorded: Json) -> Question:
        """The question that was recorded."""
        found: Mapping[str, Any] = recorded if isinstance(recorded, dict) else {}
        return cls(
            "decision" if "arguments" in found else "answer", str(found.get("question", "")),
            found.get("arguments"), found.get("may_edit") is True, tuple(found.get("options") or ()), found.get("form"),
            found.get("may_answer") is True,
        )  # fmt: skip

    def problems(self, value: Json) -> list[str]:
        """The problems of `value` as an answer, or as edited arguments; empty for a valid one."""
        if self.options and value not in self.options:
            return [f"it must be one of {', '.join(self.options)}, not {safe_repr(value)}"]
        if self.form is not None:
            return problems_in(validator_of("the form", self.form, "/form"), value, "it")
        if self.may_answer:
            return []
        is_right = isinstance(value, dict if self.kind == "decision" else str)
        return (
            []
            if is_right
            else [f"it must be {'an object' if self.kind == 'decision' else 'a text'}, not {safe_repr(value)}"]
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """An approval. arguments: the approved ones, possibly edited. by: the person, where known."""

    arguments: JsonObject
    by: str | None = None


def grant_from(question: Question, call_label: str, result: CallResult) -> Grant:
    """The approval in the result of a call that succeeded or failed.

    Raises Denied for everything else, also for an approval of arguments that were not in the question.
    """
    decision = result.output if isinstance(result.output, dict) else {}
    by, requested = _decided_by(decision), question.arguments or {}
    if result.status != "success" or decision.get("decision") != "grant":
        raise _denial(call_label, result)
    granted = decision.get("arguments")
    if granted is None or granted == requested:
        return Grant(requested, by)
    if not question.may_edit:
        raise Denied(
            f"{call_label} was granted for other arguments than the requested ones, which is not allowed",
            error={"by": by},
        )
    if not isinstance(granted, dict):
        raise Denied(f"{call_label} was granted for arguments that are no object", error={"by": by})
    return Grant(granted, by)


def answer_of(question: Question, call_label: str, result: CallResult) -> Json:
    """The answer in the result of a call that succeeded or failed. Raises Denied; ToolFailed for an invalid answer."""
    decision = result.output if isinstance(result.output, dict) else {}
    if result.status != "success" or decision.get("decision") == "deny":
        raise _denial(call_label, result)
    if "answer" not in decision:
        raise ToolFailed(f"{call_label} has a result without an answer: {safe_repr(result.output)}")
    if problems := question.problems(decision["answer"]):
        raise ToolFailed(
            safe_repr(f"the answer to {call_label} does not match the question: {'; '.join(problems)}", REASON_MAX)
        )
    answer: Json = decision["answer"]
    return answer


def timeout_message(result: CallResult, setting: str) -> str:
    """The message for a question that nobody answered in time: its text, the time, and the setting for that time."""
    why = (result.error or {}).get("message")
    return f"{why or 'nobody answered in time'}; {setting} sets how long that may take"


def check_question(text: Any) -> str:
    """Check the text of a question, and return it. Raises InvalidInput."""
    if not isinstance(text, str) or not text.strip() or len(text) > QUESTION_MAX:
        raise InvalidInput(f"a question must be a text of 1 to {QUESTION_MAX} characters, not {safe_repr(text)}", code="wrong_type",
                           path="/question")  # fmt: skip
    return text


def _denial(call_label: str, result: CallResult) -> Denied:
    decision = result.output if isinstance(result.output, dict) else {}
    by = _decided_by(decision)
    if result.status == "success" and decision.get("decision") != "deny":
        return Denied(f"{call_label} was not granted, because the report is no decision: {safe_repr(result.output)}")
    reason = decision.get("reason") or (result.error or {}).get("message")
    message = safe_repr(str(reason), REASON_MAX) if reason else None
    return Denied(f"{call_label} was denied{f' by {by}' if by else ''}{f': {message}' if message else ''}",
                  error={"by": by, "reason": message})  # fmt: skip


def _decided_by(decision: Mapping[str, Json]) -> str | None:
    by = decision.get("by")
    return safe_repr(by, NAME_MAX) if isinstance(by, str) and by else None

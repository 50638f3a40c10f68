"""Decisions that count as approval. Anything unclear is a denial."""

from typing import Any

import pytest

from heliograph.agents import define_agent
from heliograph.errors import Denied, InvalidInput
from heliograph.turn.calls import CallResult
from heliograph.turn.human_tasks import Question, grant_from


@pytest.mark.proves("S9")
@pytest.mark.parametrize(
    "body",
    [None, True, "grant", "yes", 1, [], ["grant"], {}, {"decision": True}, {"decision": "granted"}, {"decision": "GRANT"},
     {"decision": ["grant"]}, {"grant": True}, {"answer": "grant"}, {"decision": None, "arguments": {}},
     {"decision": "grant", "arguments": {"amount": 6, "to": "bob"}}, {"decision": "grant", "arguments": "all"},
     {"decision": "grant", "arguments": {}}],
    ids=str,
)  # fmt: skip
def test_unclear_or_mismatched_decision_grants_nothing(body: Any) -> None:
    question = Question("decision", "May I?", {"amount": 5, "to": "bob"})
    with pytest.raises(Denied):
        grant_from(question, "pay", CallResult("c1", "success", body))


def test_failed_report_that_contains_a_grant_grants_nothing() -> None:
    with pytest.raises(Denied, match="no"):
        grant_from(
            Question("decision", "May I?"), "pay", CallResult("c1", "failed", {"decision": "grant"}, {"message": "no"})
        )


@pytest.mark.parametrize("is_older", [False, True], ids=["now", "recorded by an older version"])
@pytest.mark.parametrize(
    "question",
    [Question("decision", "May I?"), Question("decision", "May I?", {"to": "bob"}, may_edit=True),
     Question("decision", "Again?", {}, may_answer=True), Question("answer", "Which?", options=("red", "blue"))],
    ids=["approval", "approval with arguments", "call in doubt", "question"],
)  # fmt: skip
def test_recorded_question_is_read_back_with_its_kind(question: Question, is_older: bool) -> None:
    key_of_older: dict[str, Any] = {"wants": question.kind} if is_older else {}
    found = Question.of({**key_of_older, **question.record()})
    assert (found.kind, found.question, found.options) == (question.kind, question.question, question.options)
    assert (found.arguments or {}, found.may_edit, found.may_answer) == (
        question.arguments or {}, question.may_edit, question.may_answer,
    )  # fmt: skip


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "60", None])
def test_answer_timeout_is_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(InvalidInput, match="agent clerk: asks_human"):
        define_agent("clerk", prompt="Ask", on_request=True, asks_human=seconds)

"""Guards record their verdict and the keys that they read, and compute what they compute without a record."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any, ClassVar

import pydantic
import pytest
from typing_extensions import TypedDict

from heliograph import redaction
from heliograph.reactive.guard import READS_MAX, GuardResult, evaluate_guard
from heliograph.reactive.observed_state import RecordedReads, observed
from heliograph.reactive.state import StateShape
from heliograph.signals.model import Draft
from tests.rules.reactive_kit import START, Run, agent, workflow


class Model(pydantic.BaseModel):
    subclasses: ClassVar[int] = 0

    score: int = 7
    text: str = "a"
    _private: int = 3

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        Model.subclasses += 1

    @property
    def is_good(self) -> bool:
        return self.score > 5


class Open(pydantic.BaseModel, extra="allow", frozen=True):
    score: int = 7


@dataclasses.dataclass(frozen=True, slots=True)
class Data:
    score: int = 7
    text: str = "a"


class Typed(TypedDict):
    score: int
    text: str


def evaluated(
    when: Callable[..., Any], state: dict[str, Any], kind: Any = None, untrusted: frozenset[str] = frozenset()
) -> GuardResult:
    return evaluate_guard(
        agent("a", START, when=when), StateShape(kind), state, untrusted, lambda: Draft("x:y", {"n": 1})
    )


DOCUMENT = {"score": 7, "text": "a"}
SCORE, TEXT = {"key": "score", "value": 7}, {"key": "text", "value": "a"}


@pytest.mark.proves("SIG-23", "SIG-45")
@pytest.mark.parametrize("kind", [None, Typed, Model, Data, Open], ids=str)
@pytest.mark.parametrize(
    ("when", "verdict", "reads"),
    [
        (lambda s: (s["score"] if isinstance(s, dict) else s.score) > 5, True, [SCORE]),
        (lambda s: (s["score"] if isinstance(s, dict) else s.score) > 9, False, [SCORE]),
        (lambda _: True, True, []),
        (lambda s, signal: signal.payload["n"] == 1 and s is not None, True, []),
        (lambda s: (s["text"] if isinstance(s, dict) else s.text) == "a" and (s.get("score") if isinstance(s, dict) else s.score), True, [TEXT, SCORE]),
        (lambda s: len(json.dumps(s if isinstance(s, dict) else dict(s) if isinstance(s, pydantic.BaseModel) else dataclasses.asdict(s))) > 0, True,
         [SCORE, TEXT]),
        (lambda s: (s["score"] if isinstance(s, dict) else s.score) / 0 > 1, None, [SCORE]),
    ],
)  # fmt: skip
def test_record_has_the_verdict_and_what_was_read(
    kind: Any, when: Callable[..., Any], verdict: bool | None, reads: list[Any]
) -> None:
    result = evaluated(when, DOCUMENT, kind)
    guard = {key: value for key, value in result.record["guard"].items() if key != "raised_at"}  # type: ignore[union-attr]
    assert guard == {"verdict": verdict, "reads": reads}
    assert (result.reason is None) == (verdict is True)
    assert result.is_untrusted == (verdict is None)  # the message of an exception may quote anything


def test_property_and_missing_key_record_the_keys_behind_them() -> None:
    assert evaluated(lambda s: s.is_good, DOCUMENT, Model).record["guard"] == {"verdict": True, "reads": [SCORE]}
    assert evaluated(lambda s: len(s) > 1 and bool(s), DOCUMENT).record["guard"] == {
        "verdict": True,
        "reads": [SCORE, TEXT],
    }
    missing = evaluated(lambda s: s.get("title") is None and 5 not in s, DOCUMENT)
    assert missing.record["guard"] == {"verdict": True, "reads": [{"key": "title"}]}


def test_large_values_and_many_keys_are_bounded() -> None:
    large = evaluated(lambda s: s["text"] != "", {"text": "x" * 5000})
    assert large.record["guard"] == {"verdict": True, "reads": [{"key": "text", "bytes": 5002}]}
    many = evaluated(lambda s: any(s.values()), {f"k{n}": 1 for n in range(READS_MAX + 5)})
    assert many.record["guard"]["more_reads"] == 5  # type: ignore[call-overload,index]
    assert len(many.record["guard"]["reads"]) == READS_MAX  # type: ignore[call-overload,index,arg-type]


def test_untrusted_values_mark_the_record() -> None:
    result = evaluated(lambda s: bool(s["text"]), DOCUMENT, untrusted=frozenset({"text"}))
    assert result.record["guard"] == {"verdict": True, "reads": [{**TEXT, "trust": "untrusted"}]}
    assert result.is_untrusted
    assert not evaluated(lambda s: bool(s["score"]), DOCUMENT, untrusted=frozenset({"text"})).is_untrusted


def test_secrets_are_redacted_before_values_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_kept", redaction._Kept())
    redaction.keep_out("canary-" * 30)
    result = evaluated(lambda s: bool(s["key"]), {"key": "canary-" * 30, "other": 1})
    assert result.record["guard"] == {"verdict": True, "reads": [{"key": "key", "value": "***"}]}


@pytest.mark.proves("SIG-22", "SIG-23")
def test_signals_of_activation_and_skip_contain_the_record_and_others_do_not() -> None:
    run = Run(
        workflow(
            agent("a", START, when=lambda s: s["go"]), agent("b", START), agent("c", START, when=lambda s: not s["go"])
        ),
        {"go": True},
    )
    record = [{"key": "go", "value": True}]
    assert [signal.payload for signal in run.named("agent:activated")] == [
        {"agent": "a", "guard": {"verdict": True, "reads": record}}, {"agent": "b"},
    ]  # fmt: skip
    assert [signal.payload for signal in run.named("agent:skipped")] == [
        {"agent": "c", "reason": "when guard false", "guard": {"verdict": False, "reads": record}},
    ]


# Each function answers for an observed state as for the state itself, or raises the same error.
ANSWERS: list[Callable[[Any, Any], Any]] = [
    lambda s, other: s == other, lambda s, other: other == s, lambda s, other: s != other,
    lambda s, other: isinstance(s, type(other)), lambda s, _: repr(s), lambda s, _: str(s), lambda s, _: s.__class__, lambda s, _: hash(s),
    lambda s, _: s.nothing, lambda s, _: s["nothing"], lambda s, _: s._private, lambda s, _: s.model_dump(), lambda s, _: s.model_dump_json(),
    lambda s, _: s.model_copy(update={"score": 1}), lambda s, _: dataclasses.replace(s, score=1), lambda s, _: dataclasses.asdict(s),
    lambda s, _: {**s}, lambda s, _: dict(s), lambda s, _: list(s), lambda s, _: json.dumps(s), lambda s, _: len(s), lambda s, _: bool(s),
    lambda s, _: copy.copy(s), lambda s, _: copy.deepcopy(s), lambda s, _: vars(s),
    lambda s, _: s.pop("score"), lambda s, _: s.setdefault("x", 1), lambda s, _: s | {"x": 1}, lambda s, _: {"x": 1} | s, lambda s, _: s.popitem(),
    lambda s, _: list(reversed(s)), lambda s, _: s.copy(), lambda s, _: list(s.items()), lambda s, _: setattr(s, "score", 8),
    lambda s, _: s.__setitem__("score", 8), lambda s, _: s.update(score=8),
]  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [Model, lambda: Open.model_validate({"more": 1}), Data, lambda: dict(DOCUMENT)],
    ids=["model", "open", "data", "dict"],
)
def test_observed_state_answers_like_the_state_itself(make: Callable[[], Any]) -> None:
    def outcome(function: Callable[[Any, Any], Any], state: Any) -> Any:
        try:
            return function(state, make()), state
        except Exception as error:
            return type(error), str(error)

    for function in ANSWERS:
        with RecordedReads():
            assert outcome(function, observed(make())) == outcome(function, make())


@dataclasses.dataclass
class Plain:
    score: int = 7
    text: str = "a"


class Exact(pydantic.BaseModel):  # noqa: PLW1641
    score: int = 7
    text: str = "a"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.score == other.score


def is_exact(state: object) -> bool:
    return type(state) is Plain


def test_plain_dataclass_records_its_reads() -> None:
    assert evaluated(lambda s: s.score > 5, DOCUMENT, Plain).record["guard"] == {"verdict": True, "reads": [SCORE]}
    assert evaluated(lambda s: s == Plain(7, "a"), DOCUMENT, Plain).record["guard"] == {
        "verdict": True,
        "reads": [SCORE, TEXT],
    }


@pytest.mark.parametrize(("when", "kind"), [
    (lambda s: type(s) is Plain, Plain), (is_exact, Plain), (lambda s: is_exact(s) is True, Plain), (lambda s: s == Exact(), Exact),
], ids=["guard", "helper", "helper called", "state"])  # fmt: skip
def test_guard_or_state_that_asks_for_the_exact_type_is_not_observed(when: Callable[[Any], bool], kind: type) -> None:
    assert evaluated(when, DOCUMENT, kind).record == {"guard": {"verdict": True}}


def test_observing_runs_no_hook_of_the_author_and_records_only_on_request() -> None:
    before = Model.subclasses
    state = observed(Model())
    assert state.score == 7
    with RecordedReads() as reads:
        assert state.score == 7
    assert state.text == "a"
    assert [name for name in reads if name in DOCUMENT] == ["score"]
    assert Model.subclasses == before
    for each in (Model(), Data()):  # what pickle writes names the author's class
        assert observed(copy.copy(each)).__reduce_ex__(4)[1] == each.__reduce_ex__(4)[1]


def test_state_that_allows_no_subclass_is_evaluated_without_reads() -> None:
    assert observed(True) is None
    assert observed(object()) is None


def _over(limit: int, state: Any) -> bool:
    return state["text"] > limit  # type: ignore[no-any-return]


@pytest.mark.proves("SIG-23")
def test_guard_that_raises_records_its_line() -> None:
    line = _over.__code__.co_firstlineno + 1
    by_lambda = evaluated(lambda s: _over(1, s), DOCUMENT).record["guard"]
    assert by_lambda["raised_at"] == f"test_guard.py:{line}"  # type: ignore[call-overload,index]
    library = evaluated(lambda s: json.loads(s["text"]), DOCUMENT).record["guard"]
    assert library["raised_at"] == f"test_guard.py:{line + 8}"  # type: ignore[call-overload,index]
    without_code = evaluated(functools.partial(_over, 1), DOCUMENT).record["guard"]
    assert "raised_at" not in without_code  # type: ignore[operator]
    assert "raised_at" not in evaluated(lambda s: False, DOCUMENT).record["guard"]  # type: ignore[operator]

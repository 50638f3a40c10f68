"""`explain` names the signals that came near an agent, and the condition that each did not meet."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.codes import MAX_ACTIVATIONS
from heliograph.errors import NotFound
from heliograph.reactive.why_not import explain, nearest_names
from heliograph.signals.pattern import compile_pattern
from tests.rules.reactive_kit import START, agent, workflow

APP = workflow(
    agent("writer", START, emits=["draft:ready"]),
    agent("critic", ["draft:*", "page:ready"]),
    agent("editor", (), activate_when_all=["draft:ready", "photo:taken"]),
    agent("helper", ["draft:done:**"]),
    agent("aide", (), on_request=True),
    agent("clerk", (), activate_when_all=["draft:ready", "draft:kept"], when=lambda _: False),
)


def facts(agent_name: str, *names: str, **more: Any) -> dict[str, Any]:
    """What the ledger returns about an agent; names: of the signals of the run, in order."""
    return {
        "run_id": "r", "agent": agent_name, "status": "ended", "is_agent": True, "pending_reactions": 0, "stopped_by": None, "code": None,
        "joins": [], "activations": 0, "skips": {"count": 0, "last": []}, "terminating": None, "next": None,
        "names": [{"name": name, "count": 1, "last": f"sig_r_{seq}"} for seq, name in enumerate(names, 1)], **more,
    }  # fmt: skip


def codes(found: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in explain(found, APP)]


def skip(verdict: bool | None, reason: str, **read: Any) -> dict[str, Any]:
    guard = {"guard": {"verdict": verdict, "reads": [{"key": key, "value": value} for key, value in read.items()]}}
    return {"id": "sig_r_9", "name": "draft:ready", "cause": "sig_r_8", "reason": reason, **guard}


def test_name_that_was_never_emitted_is_reported_with_the_nearest_and_its_emitters() -> None:
    ready, page = explain(facts("critic", "workflow:start", "drafts:done", "page:read"), APP)
    assert (ready["code"], ready["pattern"], ready["nearest"][0]) == ("never_emitted", "draft:*", "drafts:done")
    assert ready["next_step"] == "find out why writer did not emit it: helio signal why-not r writer"
    assert page["problem"] == "no signal of the run matches page:ready; the nearest is page:read (sig_r_3)"
    assert page["next_step"] == "did you mean page:read? No agent declares a signal that matches page:ready"
    [alone] = explain(facts("helper", "x"), APP)
    assert (
        alone["next_step"]
        == "no agent declares a signal that matches draft:done:**: add it to emits, or change activate_on"
    )


def test_nearest_names_differ_in_one_segment_or_are_spelled_alike() -> None:
    near = nearest_names(compile_pattern("draft:*:ready"), ["draft:a:read", "draft:b:c", "other:a:ready", "x", "draft"])
    assert set(near) == {"draft:a:read", "draft:b:c", "other:a:ready"}
    assert nearest_names(compile_pattern("words:counts"), ["workflow:start", "words:counted"])[0] == "words:counted"
    assert nearest_names(compile_pattern("a:b"), []) == []
    assert nearest_names(compile_pattern("answered"), ["plan_ready", "answer"]) == ["answer"]


@pytest.mark.parametrize(
    ("verdict", "reason", "code"),
    [(False, "when guard false", "guard_false"), (None, "when guard raised KeyError: 'x'", "guard_raised")],
)
def test_guard_is_reported_with_the_values_that_it_read(verdict: bool | None, reason: str, code: str) -> None:
    found = facts(
        "critic", "draft:ready", "page:ready", skips={"count": 1, "last": [skip(verdict, reason, score=1, text="a")]}
    )
    for app in (APP, None):  # the ledger alone knows it
        [finding] = explain(found, app)
        assert (finding["code"], finding["signal"], finding["name"]) == (code, "sig_r_8", "draft:ready")
        assert (
            finding["problem"]
            == f'sig_r_8 draft:ready matched, but the agent was skipped: {reason} (score = 1, text = "a")'
        )
        assert finding["next_step"] == "helio signal why sig_r_9 shows how the state came about"


def test_skip_without_a_guard_and_large_and_missing_reads_are_described() -> None:
    added = {"id": "sig_r_9", "cause": "sig_r_8", "reason": "added after this run began"}
    large = skip(False, "when guard false")
    large["guard"]["reads"] = [{"key": "text", "bytes": 900}, {"key": "gone"}]
    found = explain(facts("critic", skips={"count": 2, "last": [added, large]}), None)
    assert [finding["code"] for finding in found] == ["skipped", "guard_false"]
    assert found[1]["problem"].endswith("(text has 900 bytes, gone is missing)")


def test_join_names_the_members_that_it_lacks_and_those_that_matched() -> None:
    [finding] = explain(facts("editor", "draft:ready", "photo:taker", joins=[0]), APP)
    assert finding["code"] == "join_incomplete"
    assert finding["problem"] == ("activate_when_all still lacks photo:taken; draft:ready matched: no signal of the run matches photo:taken; "
                                  "the nearest is photo:taker (sig_r_2)")  # fmt: skip
    assert codes(facts("editor", "x")) == ["join_incomplete", "join_incomplete"]
    assert codes(facts("editor", "draft:ready", "photo:taken", activations=1)) == ["agent_ran"]
    skipped = {"count": 1, "last": [skip(False, "when guard false")]}
    assert codes(facts("clerk", "draft:ready", "draft:kept", skips=skipped)) == ["guard_false"]


def test_run_that_stopped_or_still_runs_is_the_reason() -> None:
    limited = facts(
        "critic",
        "draft:ready",
        "page:ready",
        code=MAX_ACTIVATIONS,
        stopped_by="activation limit of 5 reached",
        terminating="sig_r_1",
    )
    assert codes(limited)[0] == "limit_reached"
    late = explain(facts("critic", "draft:ready", "page:ready", stopped_by="end_when", terminating="sig_r_2"), APP)
    assert [finding["code"] for finding in late] == ["run_terminating", "not_evaluated", "after_terminating"]
    assert late[2]["problem"] == "sig_r_2 page:ready matches page:ready, but came after the run began to terminate"
    # a session that was closed has no reason to stop, and still wakes agents
    closed = explain(facts("critic", "page:ready", status="terminating", terminating="sig_r_1"), APP)
    assert {"run_running", "not_evaluated"} <= {finding["code"] for finding in closed}
    running = explain(facts("critic", status="running", pending_reactions=2), APP)
    assert running[0]["code"] == "run_running"
    assert running[0]["problem"] == "run r still runs, and 2 signals wait for a worker to react: the agent may yet wake"


def test_agents_that_no_signal_wakes_and_that_the_run_does_not_have() -> None:
    assert codes(facts("helper", "draft:done", is_agent=False)) == ["not_in_run"]
    assert codes(facts("aide", "draft:ready")) == ["no_subscription"]
    assert [each["code"] for each in explain(facts("helper"), None)] == ["no_record"]
    with pytest.raises(NotFound, match="run r has no agent critics; did you mean critic"):
        explain(facts("critics", is_agent=False), APP)
    with pytest.raises(NotFound, match="run r has no agent critics; helio run show r lists its agents") as caught:
        explain(facts("critics", is_agent=False), None)
    assert caught.value.code == "unknown_agent"

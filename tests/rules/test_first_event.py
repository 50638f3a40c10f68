"""The first event of a claimed turn: whether it begins, or continues after signals that an earlier owner has logged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from heliograph import Context, Heliograph
from heliograph.records import Claimed
from heliograph.turn.decisions import first_event
from heliograph.turn.events import Hydrated

IN_DOUBT = {
    "call_id": "c1",
    "step_id": "s1",
    "tool": "charge",
    "kind": "inline",
    "state": "resolved",
    "epoch": 1,
    "status": "unknown",
}
RUN = {"run_id": "run_a", "status": "running", "version": 1, "state": {}, "activations": 1, "open_turns": 1, "pending_reactions": 0,
       "memory": {}}  # fmt: skip
CLAIMED = {
    "agent_id": "run_a/clerk", "agent": "clerk", "run_id": "run_a", "target": "shop", "turn_id": "turn_a", "epoch": 4, "priority": 1,
    "attempts": 1, "max_attempts": 5, "ttl_seconds": 60.0, "context_box_id": None, "output_box_id": "box_a", "activation_id": "sig_2",
    "cause": {"id": "sig_1", "name": "workflow:start", "agent": None, "payload": {}},
    "inbox": [{"message_type": "turn", "correlation_id": "sig_1"}], "run": RUN,
}  # fmt: skip


def event_of(**more: Any) -> Hydrated:
    app = Heliograph("shop")

    @app.agent(activate_on=["workflow:start"])
    def clerk(ctx: Context) -> None: ...

    event = first_event(msgspec.convert({**CLAIMED, **more}, Claimed), app.workflow.agents["clerk"])
    assert isinstance(event, Hydrated)
    return event


@pytest.mark.proves("LC-25")
def test_call_in_doubt_is_no_sign_that_an_earlier_owner_has_logged_the_first_phases() -> None:
    """The kernel records it without a signal, and the owner that asked may die before it logs one."""
    assert not event_of(waits=[IN_DOUBT]).is_resumed
    assert event_of(waits=[IN_DOUBT], has_emitted_signals=True).is_resumed
    assert not event_of(waits=[{**IN_DOUBT, "state": "open", "status": None}], has_emitted_signals=True).is_resumed


@pytest.mark.parametrize(
    "more", [{"defer_count": 1}, {"waits": [{**IN_DOUBT, "kind": "tool", "state": "open", "status": None}]}]
)
def test_turn_that_was_deferred_or_suspended_continues(more: dict[str, Any]) -> None:
    assert event_of(**more).is_resumed


def test_turn_with_a_call_in_doubt_has_acted_so_it_ends_its_own_way_in_a_run_that_is_over() -> None:
    assert not event_of(waits=[IN_DOUBT], run={**RUN, "status": "terminating"}).is_run_over
    assert event_of(run={**RUN, "status": "terminating"}).is_run_over


@pytest.mark.parametrize(
    ("memory", "is_over"),
    [({}, True), ({"session": "closed"}, False), ({"session": "closed", "stopped_by": "user_interrupt"}, True)],
)
def test_turn_of_a_closed_session_begins_unless_the_session_is_stopped_too(
    memory: dict[str, Any], *, is_over: bool
) -> None:
    assert event_of(run={**RUN, "status": "terminating", "memory": memory}).is_run_over is is_over

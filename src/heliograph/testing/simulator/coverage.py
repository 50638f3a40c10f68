"""The transitions, answers and faults that a set of simulated runs must reach: an unreached one is untested."""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.testing.oracles.heads import read_moves
from heliograph.testing.simulator.simulate import RATES

# Every outcome of every kernel function, with its code where it has one; and of answers that are no outcomes, both kinds.
_ANSWERS: Mapping[str, tuple[str, ...]] = {
    "start_runs": ("started", "duplicate", "conflict", "rejected payload_too_large", "rejected fan_out",
                   "rejected inside_commit"),
    "fork": ("starts a turn again", "takes over a call: with a result",
             "takes over a call: without a result", "after a checkpoint", "at the start of a log"),
    "enqueue": ("queued", "duplicate", "conflict", "busy", "unknown_agent", "ended", "rejected queue_full",
                "rejected recursion_depth_exceeded", "rejected payload_too_large", "rejected unknown_turn", "rejected unknown_box",
                "rejected box_in_use"),
    "claim": ("some", "none"),
    "renew": ("ok", "stale", "stop"),
    "release": ("ok", "stopped", "stale"),
    "append": ("ok", "stale", "rejected too_many_cards", "rejected payload_too_large", "together"),
    "finish": ("ok", "conflict", "duplicate", "stale", "rejected payload_too_large", "rejected queue_full",
               "rejected result_fields", "rejected fan_out", "together"),
    "finish_and_claim": ("some", "none"), "start_and_claim": ("some", "none"), "report_and_claim": ("some", "none"),
    # beside `rejected fan_out`: since few signals are sent before the commit of their turn, no early seed has it; a test of the runtime has
    "react": ("ok", "conflict", "rejected queue_full"),
    "begin_call": ("fresh", "again", "done", "in_doubt", "stale", "rejected too_many_waits", "rejected not_inline",
                   "rejected BUDGET_EXCEEDED", "rejected CIRCUIT_OPEN", "rejected RATE_LIMITED"),
    "record_call": ("ok", "duplicate", "stale", "rejected payload_too_large", "rejected not_begun", "rejected not_inline"),
    "suspend": ("suspended", "resolved", "stopped", "stale", "rejected too_many_waits", "rejected too_many_cards",
                "rejected payload_too_large", "rejected fan_out", "rejected recursion_depth_exceeded", "rejected queue_full",
                "rejected unknown_agent", "rejected delegation_cycle", "rejected run_stopping", "rejected id_conflict", "rejected BUDGET_EXCEEDED", "rejected CIRCUIT_OPEN",
                "together"),
    "defer": ("deferred", "exhausted", "stopped", "stale"),
    "report": ("applied", "early", "duplicate", "late", "turn_done", "unknown_turn", "unknown_call", "bad_token",
               "invalid invalid_result", "invalid payload_too_large", "rejected too_many_early", "resumed", "applied by suspend",
               "together"),
    "take_commands": ("some", "none"),
    "stop": ("stopped", "stopping", "already_done", "unknown_turn"),
    "stopped while": ("queued", "dispatched", "running", "suspended"),
    "stop_runs": ("stopping", "already_done", "unknown_run"),
    "sweep_leases": ("recovered", "ended"),
    "sweep_expired": ("ended",),
    "sweep_waits": ("resolved", "resumed"),
    "sweep_stops": ("stopped", "stopping", "owners", "forced", "delivered"),
    "sweep_reports": ("resolved", "resumed"),
    "sweep_bells": ("some", "none"),
    "sweep_pending_reactions": ("some", "none"),
    "read_outbox": ("some", "none"),
    "command": ("published",),
    "call": ("tool success", "tool failed", "tool timeout", "child success", "child failed", "child timeout", "child canceled",
             "timer success", "not made failed", "not made canceled", "inline success", "inline failed", "inline timeout", "inline unknown"),
    "effect": ("pure", "idempotent", "transactional", "once"),
    "turn": ("success", "failed", "timeout", "canceled"),
    "run": ("success", "failed", "partial", "canceled", "with untrusted state", "with trusted state"),
    "expiry": ("deferred for people",),
    "turn that no worker": ("claimed",),
    "rate": ("at once", "waits", "limited"),
    "circuit": ("closed", "open", "half_open", "trial"),
}  # fmt: skip
_MAINTENANCE: Mapping[str, tuple[str, ...]] = {
    "put_boxes": ("put", "duplicate", "conflict", "rejected payload_too_large", "rejected card_exists"),
    "fork_boxes": ("forked", "duplicate", "conflict", "unknown_box", "unknown_turn"),
    "replace_boxes": ("ok", "stale", "rejected unknown_box", "rejected box_not_writable", "rejected box_in_use"),
    "read_box": ("some", "none"),
    "prune": ("turns", "runs", "signals", "cards", "boxes", "blobs", "more"),
}
# Only an agent with a terminate hook gets a stop after it was suspended or deferred.
_HOOKED: Mapping[str, tuple[str, ...]] = {
    "claim": ("stop",),
    "suspend": ("stopping",),
    "stopping while": ("suspended", "dispatched"),
    "deferred turn": ("that a stop makes due",),
    "stop:": ("suspended -> dispatched",),
}
# Not here, because no healthy kernel answers so: `failed` of a sweep, `dispatched` of sweep_queued, `resumed` of sweep_stuck.
# tests/kernel damages rows to see them.
SOMETIMES_IN_SESSIONS = frozenset({
    "session closed with open turns", "session closed without turns", "closed session wakes", "closed session delegates", "enqueue ended",
    "run success", "run canceled",
})  # fmt: skip
SOMETIMES_HOOKED = frozenset(f"{function} {answer}" for function, answers in _HOOKED.items() for answer in answers)
SOMETIMES = (
    frozenset(
        [f"{function} {answer}" for function, answers in _ANSWERS.items() for answer in answers]
        + [str(move) for move in read_moves()]
        + [f"fault {kind}" for kind in RATES]
    )
    - SOMETIMES_HOOKED
)
# Only cases with maintenance reach these, on PostgreSQL.
SOMETIMES_MAINTAINED = frozenset(
    f"{function} {answer}" for function, answers in _MAINTENANCE.items() for answer in answers
)


def unreached(
    counters: Mapping[str, int], *, maintenance: bool = False, hooks: bool = False, sessions: bool = False
) -> list[str]:
    """List the names that a set of seeds must reach and that `counters`, their sum, lacks. hooks, sessions: see `simulate.Case`."""
    required = SOMETIMES | SOMETIMES_MAINTAINED if maintenance else SOMETIMES
    if hooks or sessions:
        required = SOMETIMES_HOOKED if hooks else SOMETIMES_IN_SESSIONS
    return sorted(name for name in required if not counters.get(name))

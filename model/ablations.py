"""Rules switched off, and the finding that each must produce. An ablation without a finding is a hole in the model.

`expect` is the property that must break, "L1" or "L2" for liveness, or "" for a rule that is redundant beside others:
then every property must still hold, and `why` gives the purpose of the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from model.actions_humans import EXPIRED
from model.actions_unclaimed import HEALTHY
from model.breakers import LATE, TOO_MANY, BreakerModel, BreakerRules
from model.buckets import EARLY, SHARED, WASTED, BucketModel, BucketRules
from model.buckets import TOO_MANY as TOO_MANY_STARTS
from model.cases_runs import D0, D1, D7, P3, R1, R3, R10, R11, R13, R14
from model.cases_turns import C1, C2, C3, C4, C5, E3, I1, I2, P1, P2, S1, S3, T1, T2, U1
from model.checker import Result, explore
from model.configs import Config, faults
from model.locks import ROWS, TURNS, LockModel, Transaction, as_needed, mixed, row_first, rows_as_met, runs_then_heads
from model.properties import KernelModel


@dataclass(frozen=True)
class Ablation:
    rule: str
    config: Config
    off: dict[str, bool]
    expect: str
    why: str = ""

    def ablated(self) -> Config:
        """The configuration with the rules off; where there is a trace to read, the workers keep their names."""
        return replace(self.config, rules=replace(self.config.rules, **self.off), is_symmetric=not self.expect)

    def run(self) -> Result:
        return explore(KernelModel(self.ablated()), stop_at=self.expect or None)


@dataclass(frozen=True)
class LockAblation:
    rule: str
    order: Callable[[Transaction], tuple[str, ...]]
    expect: str
    why: str = ""
    transactions: tuple[Transaction, ...] = TURNS

    def run(self) -> Result:
        return explore(LockModel(self.order, self.transactions), stop_at=self.expect or None)


@dataclass(frozen=True)
class BreakerAblation:
    rule: str
    off: dict[str, bool]
    expect: str
    why: str = ""

    def run(self) -> Result:
        return explore(BreakerModel(BreakerRules(**self.off)), stop_at=self.expect or None)


@dataclass(frozen=True)
class BucketAblation:
    rule: str
    off: dict[str, bool]
    expect: str
    why: str = ""

    def run(self) -> Result:
        return explore(BucketModel(BucketRules(**self.off)), stop_at=self.expect or None)


IDLE_SESSION = replace(R14, agents=(0, 0), scripts=((), ()), wakes=())
AnyAblation: TypeAlias = Ablation | LockAblation | BreakerAblation | BucketAblation


def found(ablation: AnyAblation, result: Result) -> list[str] | None:
    """The trace of what was expected; None when it was not found. An empty list: nothing was expected, all holds."""
    if not ablation.expect:
        return [] if result.holds else None
    if ablation.expect in result.stuck:
        return result.stuck[ablation.expect].trace
    return result.broken.get(ablation.expect)


def only(cfg: Config, **changes: Any) -> Config:
    return replace(cfg, faults=faults(**changes))


STALE_CARD = "a stale owner writes a card"
DROPPED = "a result is dropped"
TWO_OWNERS = "two workers are valid owners of one turn"
TWO_DELIVERABLES = "two deliverables"
UNDELIVERED = "a turn ended without exactly one deliverable and event"
TWICE = "a side effect is executed twice"
NEVER_WOKEN = "the run has ended, a turn was never woken"
WOKEN_TWICE = "a turn is woken twice"
ENDED_OPEN = "the run has ended, a turn is open"
MISCOUNTED = "the run miscounts its open turns"
SLEEPS = "a turn sleeps on a result"
NOTHING_OPEN = "suspended with nothing open"
LOST_STOP = "a stop asked for is lost"
ORPHAN = "a child goes on, nobody waits for it"
NO_WAIT = "resumed without a matching wait"
LATECOMER = "a turn comes into a run that is being stopped"
STOPS = only(R1, stop=2)

ABLATIONS: tuple[AnyAblation, ...] = (
    Ablation("K1", C1, {"atomic_finish": False}, STALE_CARD),
    Ablation("K1", C1, {"atomic_finish": False}, TWO_DELIVERABLES),
    Ablation("K1", only(C1, crash=1), {"atomic_finish": False}, "L1"),
    Ablation("K2", C1, {"gated_cards": False}, STALE_CARD),
    Ablation("K3+K28", C1, {"suspend_first": False, "early_kept": False}, DROPPED),
    Ablation("K3", C1, {"suspend_first": False}, "a stale owner starts a side effect"),
    Ablation("K4", C3, {"report_by_wait": False}, NO_WAIT),
    Ablation("K4", only(D1, dup=1), {"report_by_wait": False}, NO_WAIT),
    Ablation("K5", C5, {"report_by_call": False}, DROPPED),
    Ablation("K6", C3, {"bump_on_claim": False}, TWO_OWNERS),
    Ablation("K7", only(C3, crash=1, reap=1, amb=1), {"bump_on_recover": False}, "",
             "redundant beside K6: every new owner claims; kept, it makes a lost lease visible to `heartbeat`"),
    Ablation("K7", only(C1, defer=1, release=1, amb=1), {"bump_on_recover": False}, "",
             "redundant beside K6, for defer and release as well"),
    Ablation("K6+K7", C3, {"bump_on_claim": False, "bump_on_recover": False}, TWO_OWNERS),
    Ablation("K6+K7", only(C1, release=1, amb=1), {"bump_on_claim": False, "bump_on_recover": False}, TWO_OWNERS),
    Ablation("K8", only(C1, crash=1, stop=1), {"chain_dispatch": False}, "",
             "latency only, while the sweep K10b dispatches"),
    Ablation("K8+K10b", only(C1), {"chain_dispatch": False, "sweep_dispatches": False}, "L1"),
    Ablation("K9", only(C1, crash=1, stop=1), {"enqueue_locks": False}, "",
             "latency only, while the sweep K10b dispatches"),
    Ablation("K9+K10b", only(C1, stop=1), {"enqueue_locks": False, "sweep_dispatches": False}, "L1"),
    Ablation("K10", only(C1, lose=1), {"sweep_rings": False}, "L1"),
    Ablation("K10b", only(C1, crash=1, stop=1), {"sweep_dispatches": False}, "",
             "redundant beside K8 and K9; kept against a bug in either"),
    Ablation("K10c", only(C5, dup=1), {"sweep_stuck": False}, "",
             "redundant beside K3, K4, K16 and K30; kept against a bug in them"),
    Ablation("K11", only(C1, silent=1), {"sweep_timeouts": False}, "L1"),
    Ablation("K12", C1, {"stop_in_kernel": False}, TWO_DELIVERABLES),
    Ablation("K12", C1, {"stop_in_kernel": False}, UNDELIVERED),
    Ablation("K13", C4, {"intent_first": False}, "effect without a durable intent"),
    Ablation("K13", C4, {"intent_first": False}, TWICE),
    Ablation("K13", I2, {"intents_commit": False}, "effect without a durable intent"),
    Ablation("K14", I2, {"no_blind_retry": False}, TWICE),
    Ablation("K14", C4, {"no_blind_retry": False}, TWICE),
    Ablation("K14", replace(C4, is_deduped=True), {"no_blind_retry": False}, "",
             "a tool that dedupes by call id (effect: idempotent) may be called again"),
    Ablation("K15", C2, {"resume_when_all": False}, "resumed with an open wait"),
    Ablation("K16", only(C3, early=1), {"suspend_rechecks": False}, NOTHING_OPEN),
    Ablation("K16+K10c", only(C3, early=1), {"suspend_rechecks": False, "sweep_stuck": False}, "L1"),
    Ablation("K16", only(C5, crash=1, dup=1), {"suspend_rechecks": False}, "",
             "redundant beside K29 with streaming join: where nothing is open, there is a result to tell"),
    Ablation("K16+K29", C5, {"suspend_rechecks": False, "suspend_returns_results": False}, NOTHING_OPEN),
    Ablation("K16", only(C2, crash=1, dup=1, reap=1), {"suspend_rechecks": False}, "",
             "unreachable with join all, while no report is early"),
    LockAblation("K17", as_needed, "deadlock"),
    LockAblation("K17b", mixed, "deadlock"),
    LockAblation("K17b", runs_then_heads, "", "the other order is as safe, if every function takes it"),
    Ablation("K19", only(C1), {"ttl": False}, "L2"),
    Ablation("K19b", only(P1), {"human_waits_exempt": False}, EXPIRED),
    Ablation("K19b", only(P1), {"human_waits_rechecked": False}, EXPIRED),
    Ablation("K19b", only(P1), {"human_waits_cleared": False}, "L2"),
    Ablation("K19b", only(P2), {"human_waits_cleared": False}, "the time of a turn that is not suspended does not pass"),
    Ablation("K19c", only(P3), {"human_waits_below": False}, EXPIRED),
    Ablation("K19d", only(R11), {"ending_counts": False}, "L2"),
    Ablation("K19e", only(T1), {"ttl": False}, "",
             "redundant beside the dispatch timeout, where no call is without a deadline"),
    Ablation("K19e", only(T1), {"ttl": False, "unclaimed_ends": False}, "L2"),
    Ablation("K19e", only(T1), {"unclaimed_locked": False}, "a turn that was claimed ends as unclaimed"),
    Ablation("K23", only(T2, poison=1), {"unclaimable_ends": False}, "L1"),
    Ablation("K23", only(T2, poison=1), {"unclaimable_rechecked": False}, HEALTHY),
    Ablation("K24", only(R1), {"version_guard": False}, "L1"),
    Ablation("K24", STOPS, {"version_guard": False}, WOKEN_TWICE),
    Ablation("K24b", only(R1, stop=1), {"whole_read": False}, WOKEN_TWICE),
    Ablation("K24c", STOPS, {"changes_bump": False}, "L1"),
    Ablation("K24c", only(R3), {"changes_bump": False}, ENDED_OPEN),
    Ablation("K24c", only(R1, stop_run=1), {"changes_bump": False}, LATECOMER),
    Ablation("K24d", only(R13), {"follows_checked": False}, NEVER_WOKEN),
    Ablation("K25", only(R1, stop=1), {"pending_reaction": False}, "L1"),
    Ablation("K25", STOPS, {"pending_reaction": False}, NEVER_WOKEN),
    Ablation("K26", STOPS, {"end_sees_pending": False}, NEVER_WOKEN),
    Ablation("K26", STOPS, {"end_sees_pending": False}, "the run ends twice"),
    Ablation("K27", only(R1, stop=1), {"count_locked": False}, "",
             "redundant beside K24 and K24c: at an equal version, what was read is what is there"),
    Ablation("K27+K24c", only(R1, stop=1), {"count_locked": False, "changes_bump": False}, MISCOUNTED),
    Ablation("K27b", only(R3, stop=1), {"join_locked": False}, ENDED_OPEN),
    Ablation("K28", only(C3, early=1), {"early_kept": False}, DROPPED),
    Ablation("K28", only(C3, early=1), {"early_always": False}, DROPPED),
    Ablation("K28b", only(C3, early=1, forge=1), {"early_by_token": False}, DROPPED),
    Ablation("K28b", only(C3, early=1, forge=1), {"early_by_token": False}, "a forged result is applied"),
    Ablation("K29", only(E3), {"suspend_returns_results": False}, SLEEPS),
    Ablation("K30", only(E3), {"suspend_recounts": False}, "the head miscounts its waits"),
    Ablation("K30b", I1, {"inline_apart": False}, "L1"),
    Ablation("K30c", I1, {"inline_untimed": False}, DROPPED),
    Ablation("K31", S1, {"stop_holds": False}, LOST_STOP),
    Ablation("K31", only(C1, graceful=1), {"stop_holds": False}, LOST_STOP),
    Ablation("K31b", only(C1, graceful=1, hang=1), {"sweep_stops": False}, "L1"),
    Ablation("K32", only(S3), {"defer_capped": False}, "L1"),
    Ablation("K33", only(D1), {"report_row": False}, "L1"),
    Ablation("K33b", only(D1, stop=1), {"stop_rows": False}, ORPHAN),
    Ablation("K33b", only(D7), {"stop_rows": False}, ORPHAN),
    Ablation("K34", D0, {}, "L1"),
    Ablation("K35", only(R3, stop_run=1), {"stopping_closed": False}, LATECOMER),
    Ablation("K35b", only(R10), {"limit_stops": False}, "L2"),
    Ablation("K35b", only(R11), {"goal_stops": False}, "L2"),
    Ablation("K38", only(R14), {"closed_wakes": False}, "the run has ended, a turn was never woken"),
    Ablation("K38", only(R14), {"close_reacts": False}, "L1"),
    Ablation("K38b", only(R14), {"session_waits": False}, "an open session has ended"),
    Ablation("K38c", only(IDLE_SESSION, stop_run=1), {"stop_reacts": False}, "L1"),
    Ablation("K36", only(U1), {"action_locks": False}, "two active turns on one agent"),
    LockAblation("K37", rows_as_met, "deadlock", transactions=ROWS),
    LockAblation("K37", row_first, "deadlock", transactions=ROWS),
    BreakerAblation("B1", {"read_again": False}, TOO_MANY),
    BreakerAblation("B2", {"lock_needed": False}, TOO_MANY),
    BreakerAblation("B3", {"trials_end": False}, "L1"),
    BreakerAblation("B4", {"by_generation": False}, LATE),
    BucketAblation("T1", {"lock_first": False}, TOO_MANY_STARTS),
    BucketAblation("T2", {"again_takes": False}, SHARED),
    BucketAblation("T3", {"waits_for_start": False}, EARLY),
    BucketAblation("T4", {"rejected_free": False}, WASTED),
    BucketAblation("T5", {"reset_after_starts": False}, TOO_MANY_STARTS),
)  # fmt: skip

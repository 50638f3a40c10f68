"""The rules of the kernel as switches. All on is the kernel; one off is an ablation that must break something.

Names and numbers are those of kernel.md; the comment of each says what the rule is and what its absence costs. Which
configuration shows it, and the expected finding, is in `ablations.ABLATIONS`; `python -m model ablate` looks for it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    # K1: deliverable, state, task event, dispatch of the next turn are one transaction, gated by (turn, epoch, running).
    # Without: a zombie's card stays, two deliverables, terminal turns without an event.
    atomic_finish: bool = True
    # K2: every card append carries (turn, epoch) and is refused when stale. Without: a zombie writes into the box.
    gated_cards: bool = True
    # K3: wait rows, suspension and command outbox commit together; commands leave after the commit.
    # Without: the result comes before there is a wait for it and is dropped.
    suspend_first: bool = True
    # K4: a report acts only through its wait row open -> resolved; the first writer wins, the rest are duplicates.
    # Without: a late result resumes a turn that already goes on, under its running worker.
    report_by_wait: bool = True
    # K5: reports find their wait by call id, never by epoch. Without: results of parallel calls are dropped.
    report_by_call: bool = True
    # K6: each claim raises the epoch. Without: the retry of a suspended owner is valid again; two valid workers.
    bump_on_claim: bool = True
    # K7: lease recovery raises the epoch as well. Redundant beside K6; kept because `heartbeat` then sees the loss.
    bump_on_recover: bool = True
    # K8: whoever makes a head idle dispatches the next queued turn in the same transaction.
    # Without: latency, as long as the sweep K10b is there.
    chain_dispatch: bool = True
    # K9: enqueue locks the head before it decides. Without: a queued turn on an idle head, nobody wakes it (but K10b).
    enqueue_locks: bool = True
    # K10: a sweep rings for dispatched heads. Without: one lost bell and the turn sleeps for ever.
    sweep_rings: bool = True
    # K10b: a sweep dispatches queued turns on idle heads. Redundant beside K8 and K9; the belt to their braces.
    sweep_dispatches: bool = True
    # K11: a sweep resolves each overdue wait. Without: a silent tool holds the turn until its TTL.
    sweep_timeouts: bool = True
    # K12: stop ends the turn itself, with deliverable and event, in one transaction.
    # Without: two deliverables, and turns that end without deliverable.
    stop_in_kernel: bool = True
    # K13: the intent of an inline side effect commits before the effect. Without: effects that nobody knows of.
    intent_first: bool = True
    # K14: an intent left by an earlier owner is resolved as unknown, never executed again.
    # Without: executed twice, unless the tool itself dedupes by call id (Config.is_deduped).
    no_blind_retry: bool = True
    # K15: a suspended turn resumes only when no wait is open (unless it asked for each result, Config.is_streaming).
    resume_when_all: bool = True
    # K16: suspend looks at the waits again under the lock. Without, with streaming join: suspended with nothing open.
    suspend_rechecks: bool = True
    # K19: an expired turn is ended by the watchdog. Without: all workers dead, the turn never ends.
    ttl: bool = True
    # K24: finish and react commit only against the version of the run from which the reaction was computed.
    # Without: two endings that do not see each other; what needs both is woken never (and the run does not end), or twice.
    version_guard: bool = True
    # K24b: the version is read together with what the reaction is computed from (one statement, or the version first).
    # Without (state first, version later): an old state is written under a new version, and the guard sees nothing.
    whole_read: bool = True
    # K24c: whatever a reaction depends on raises the version, an ending by the kernel and a join as well.
    # Without: react, at an equal version, clears a mark that it never read; the run ends before its time.
    changes_bump: bool = True
    # K25: a turn ended by the kernel is marked as owing its reaction, in the same transaction; a worker's sweep pays.
    # Without: the run never ends, or the other critic ends it and the editor is never woken.
    owed_reaction: bool = True
    # K26: a run ends when no turn is open and nothing is owed. Without the look at `owed`: it ends before a reaction
    # that was still to come, and ends again after it. The tables refuse this too (K21); the model has no tables.
    end_sees_owed: bool = True
    # K27: `open` is changed by difference under the lock of the run, in the transaction that changes the turn.
    # Redundant beside K24 and K24c, which make what was read what is there; without both: miscounted, never ends.
    count_locked: bool = True
    # K27b: an enqueue into a run looks at the run's status under that lock. Without: a turn joins a run that has ended.
    join_locked: bool = True

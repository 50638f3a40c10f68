"""The rules of the kernel as switches. All on is the kernel; one off is an ablation that must break something.

Names and numbers are those of docs/internals/kernel-rules.md; the comment of each states the rule and the price of its absence. Which
configuration shows it, and the expected finding, is in `ablations.ABLATIONS`; `python -m model ablate` looks for it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    # K1: deliverable, state, task event, dispatch of the next turn are one transaction, gated by (turn, epoch, running).
    # Without: a zombie's card stays, two deliverables, terminal turns without an event.
    atomic_finish: bool = True
    # K2: every card append carries (turn, epoch) and is rejected when stale. Without: a zombie writes into the box.
    gated_cards: bool = True
    # K3: wait rows, suspension and command outbox commit together; commands leave after the commit.
    # Without: a stale owner starts a side effect; and without K28 a result that comes before its wait is dropped.
    suspend_first: bool = True
    # K4: a report acts only through its wait row open -> resolved; the first writer wins, the rest are duplicates.
    # Without: a late result resumes a turn that already goes on, under its running worker.
    report_by_wait: bool = True
    # K5: reports find their wait by call id, never by epoch. Without: results of parallel calls are dropped.
    report_by_call: bool = True
    # K6: each claim raises the epoch. Without: the retry of a suspended owner is valid again; two valid workers.
    bump_on_claim: bool = True
    # K7: lease recovery, defer and release raise the epoch as well. Redundant beside K6; kept because `heartbeat` then sees the loss.
    bump_on_recover: bool = True
    # K8: the function that makes a head idle dispatches the next queued turn in the same transaction.
    # Without: latency, as long as the sweep K10b is there.
    chain_dispatch: bool = True
    # K9: enqueue locks the head before it decides. Without: a queued turn on an idle head, nobody wakes it (but K10b).
    enqueue_locks: bool = True
    # K10: a sweep rings for dispatched heads. Without: one lost bell and the turn sleeps forever.
    sweep_rings: bool = True
    # K10b: a sweep dispatches queued turns on idle heads. Redundant beside K8 and K9; the belt to their braces.
    sweep_dispatches: bool = True
    # K11: a sweep resolves each overdue wait. Without: a silent tool holds the turn until its TTL.
    sweep_timeouts: bool = True
    # K12: stop ends the turn itself, with deliverable and event, in one transaction.
    # Without: two deliverables, and turns that end without deliverable.
    stop_in_kernel: bool = True
    # K13: the intent of an inline side effect commits before the effect. Without: effects without a record.
    intent_first: bool = True
    # K13 again: the intents that a result carries commit with it. Without: an effect whose intent nobody can find.
    intents_commit: bool = True
    # K14: an intent left by an earlier owner is resolved as unknown, never executed again.
    # Without: executed twice, unless the tool itself dedupes by call id (Config.is_deduped).
    no_blind_retry: bool = True
    # K15: a suspended turn resumes only when no wait is open (unless it asked for each result, Config.is_streaming).
    resume_when_all: bool = True
    # K16: suspend looks at the waits again under the lock. Without, after an early report: suspended with nothing open.
    # With streaming join it is redundant beside K29: where nothing is open, there is a result to deliver.
    suspend_rechecks: bool = True
    # K19: an expired turn is ended by the watchdog. Without: all workers dead, the turn never ends.
    ttl: bool = True
    # K19b: a turn that is suspended on questions to people, and on nothing else, does not expire. Without: its question is
    # lost when the time to live is up, however long people may take.
    human_waits_exempt: bool = True
    # K19b again: also when a result leaves nothing open but questions. Without: as above, if a tool was awaited as well.
    human_waits_rechecked: bool = True
    # K19b again: a resume ends this. Without: nothing but a worker ends the turn any more.
    human_waits_cleared: bool = True
    # K19c: a turn above one that waits for people is kept as well. Without: the parent expires, and takes the question along.
    human_waits_below: bool = True
    # K19d: in a run that is ending the time counts. Without: a question that comes late keeps the run open forever.
    ending_counts: bool = True
    # K19e: the dispatch timeout, where a project sets one. Redundant beside K19.
    unclaimed_ends: bool = True
    # K19e again: the sweep reads the status under the lock under which it ends the turn. Without: it ends a healthy turn
    # that a worker has claimed meanwhile.
    unclaimed_locked: bool = True
    # K23: the worker has a turn ended whose claim raises an error. Without: it stands before the other turns of its agent
    # until it expires.
    unclaimable_ends: bool = True
    # K23 again: fail_unclaimable tries the claim again under the lock. Without: it ends the next turn, which is healthy.
    unclaimable_rechecked: bool = True
    # K24: finish and react commit only against the version of the run from which the reaction was computed.
    # Without: two endings that do not see each other; what needs both is woken never (and the run does not end), or twice.
    version_guard: bool = True
    # K24b: the version is read together with what the reaction is computed from (one statement, or the version first).
    # Without (state first, version later): an old state is written under a new version, and the guard sees nothing.
    whole_read: bool = True
    # K24c: every change that a reaction depends on raises the version, also an ending by the kernel and a join.
    # Without: react, at an equal version, clears a mark that it never read; the run ends before its time.
    changes_bump: bool = True
    # K24d: an ending that was computed from the run that another one makes counts only if the same transaction has accepted
    # that one. Without: a run of the same version, which others have made, is replaced; their endings are lost.
    follows_checked: bool = True
    # K25: a turn ended by the kernel has a pending reaction, in the same transaction; a worker's sweep commits it.
    # Without: the run never ends, or the other critic ends it and the editor is never woken.
    pending_reaction: bool = True
    # K26: a run ends when no turn is open and nothing is pending. Without the look at `pending`: it ends before a reaction
    # that was still to come, and ends again after it. The tables reject this too (K21); the model has no tables.
    end_sees_pending: bool = True
    # K27: `open` is changed by difference under the lock of the run, in the transaction that changes the turn.
    # Redundant beside K24 and K24c, which make what was read what is there; without both: miscounted, never ends.
    count_locked: bool = True
    # K27b: an enqueue into a run looks at the run's status under that lock. Without: a turn joins a run that has ended.
    join_locked: bool = True
    # K10c: a sweep dispatches what is suspended although nothing is open. Redundant beside K3, K4, K16 and K30; kept
    # against a bug in them: without it and one of them the turn sleeps until it expires.
    sweep_stuck: bool = True
    # K28: a report for a call that is not open yet is kept while the turn is not done, whatever its head's status;
    # the suspend that opens the call applies it. Without: the result is dropped.
    early_kept: bool = True
    # K28 again: also when the turn is queued, or suspended on another call.
    early_always: bool = True
    # K28b: an early report is kept under its token; it takes the place of no other, and the suspend compares.
    # Without: a forged report is applied, or makes the true one a duplicate.
    early_by_token: bool = True
    # K29: with streaming join, suspend stays running while its owner has not seen a result.
    # Without: the turn sleeps on a result, for as long as the others take.
    suspend_returns_results: bool = True
    # K30: suspend counts all waits of the turn that are open, anew. Without, with streaming join: counts those of its
    # own calls only, and wakes too early or never.
    suspend_recounts: bool = True
    # K30b: inline calls are their owner's: nobody waits for them. Without: an intent that a lost owner left open, and
    # its successor does not come back to, suspends the turn for good.
    inline_apart: bool = True
    # K30c: no sweep times an inline call out. Without: the owner's result is dropped.
    inline_untimed: bool = True
    # K31: a graceful stop is a mark on a running head, or on a dispatched one whose terminate phase a worker can still
    # run: suspend, recovery, release and defer end the turn, or keep the mark. Without: the mark is lost with the status, and the turn goes on.
    stop_holds: bool = True
    # K31b: a sweep ends it when the grace is over. Without: an owner that never looks keeps the turn.
    sweep_stops: bool = True
    # K32: deferrals are counted; past the cap the kernel ends the turn. Without: a turn is deferred forever.
    defer_capped: bool = True
    # K33: the end of a child writes the row that reports to its parent, in the same transaction. Without: a crash after
    # it, or an end by the kernel, and the parent sleeps forever.
    report_row: bool = True
    # K33b: a parent that ends, or whose wait times out, writes stop rows for its open children in the same
    # transaction. Without: the child goes on, nobody waits for it.
    stop_rows: bool = True
    # K34 has no switch: a child has a head of its own. Without: it is queued behind the parent that waits for it.
    # K35: nothing comes into a run that is being stopped. Without: a turn that no stop row will ever end.
    stopping_closed: bool = True
    # K35b: a run that reaches its activation limit gets stop rows for its open turns, in the same transaction.
    # Without: a turn that waits for people keeps the run open forever.
    limit_stops: bool = True
    # K35b again: a run whose goal is met gets stop rows for the turns that wait for people. Without: the same.
    goal_stops: bool = True
    # K38: the signals of a closed session wake agents. Without: whether they do depends on the moment of the close.
    closed_wakes: bool = True
    # K38 again: the close has a pending reaction. Without: a session without a turn never ends.
    close_reacts: bool = True
    # K38b: a session waits for messages while it is open. Without: it ends after the first reply.
    session_waits: bool = True
    # K38c: the stop of a session without a turn has a pending reaction, too. Without: it never ends.
    stop_reacts: bool = True
    # K36: a ui_action looks at the head under its lock. Without: two active turns on one agent.
    action_locks: bool = True

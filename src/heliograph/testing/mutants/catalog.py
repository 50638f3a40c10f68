"""The mutants: each takes one rule out of the kernel or the runtime, and the simulator must detect it.

Most mutants exist twice, as a bug of the in-memory kernel and as a replacement
in the SQL (`sql_replacements`); the others change the runtime. A simulator that
misses a mutant proves nothing when it finds no failure, so
`tests/simulator/test_mutants.py` runs all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from heliograph.testing.kernel.backend import Backend
from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.mutants.sql_replacements import REPLACED
from heliograph.testing.scenarios.building_blocks import Size
from heliograph.testing.simulator.simulate import Case, Result, simulate


@dataclass(frozen=True, slots=True)
class Mutant:
    """A kernel or runtime without one rule.

    rules: the rules that it breaks. bugs: its names in the in-memory kernel; empty where it has the mutant's own name.
    repeats_once: a mutant of the runtime, which runs a step of effect `once` again.
    maintenance: its rule belongs to functions that only PostgreSQL has. hooks: its rule is about agents with hooks.
    messages: sent to each run, at most; None: as many as usual. With more, ends of a run more often meet in one call.
    """

    name: str
    rules: str
    bugs: tuple[str, ...] = ()
    repeats_once: bool = False
    maintenance: bool = False
    hooks: bool = False
    messages: int | None = None

    @property
    def has_sql(self) -> bool:
        return self.name in REPLACED

    @property
    def has_in_memory(self) -> bool:
        return not self.maintenance

    def in_memory(self) -> InMemoryKernel:
        return InMemoryKernel(() if self.repeats_once else self.bugs or (self.name,))

    def case(self, seed: int) -> Case:
        return self.applied_to(Case(seed, maintenance=self.maintenance))

    def applied_to(self, case: Case) -> Case:
        """The case with the application, the messages and the change of the runtime that this mutant needs; a smaller size remains."""
        size = case.size
        if self.messages is not None and size == Size():
            size = replace(size, messages=self.messages)
        return replace(case, size=size, repeats_once=self.repeats_once, hooks=case.hooks or self.hooks)


MUTANTS: dict[str, Mutant] = {m.name: m for m in (
    # ownership of turns
    Mutant("no_bump", "K6 K7"),
    Mutant("finish_no_gate", "K1"),
    Mutant("ungated_append", "K2"),
    Mutant("append_repeats", "K2"),
    Mutant("any_pool", "RTE-05"),
    Mutant("no_lease_sweep", "K7"),
    Mutant("attempts_unbounded", "K19"),
    Mutant("recovery_loses_place", "K22"),
    Mutant("once_runs_twice", "K14", repeats_once=True),
    # ends of turns, and their consequences
    Mutant("finish_splits_event", "K1"),
    Mutant("kernel_end_without_event", "K1 K19"),
    Mutant("no_ttl_sweep", "K19"),
    Mutant("human_wait_counts", "K19"),
    Mutant("parent_time_counts", "K19"),
    Mutant("no_dispatch_timeout", "K20"),
    Mutant("no_chain", "K8 K10", ("no_chain", "no_queued_sweep")),
    Mutant("no_bell_sweep", "K10"),
    Mutant("enqueue_no_dedup", "L0-06"),
    Mutant("dispatch_lifo", "L0-34"),
    Mutant("result_fields_unchecked", "L0-84"),
    # reactions of a run
    Mutant("no_version_guard", "K24"),
    Mutant("follows_unchecked", "K24d"),
    Mutant("follows_rejected", "K24d", messages=12),
    Mutant("react_unguarded", "K24 K25"),
    Mutant("no_pending_reactions", "K25"),
    Mutant("ends_with_open_turns", "K26"),
    Mutant("open_turns_miscounted", "K27"),
    Mutant("limit_leaves_turns", "G-47"),
    Mutant("message_clears_taint", "S24"),
    # forks
    Mutant("fork_forgets_results", "0072"),
    Mutant("fork_forgets_calls", "0072"),
    Mutant("fork_has_later_results", "0072"),
    Mutant("fork_splits_commit", "0072"),
    Mutant("fork_changes_origin", "0072"),
    Mutant("checkpoint_pending", "0082"),
    # calls that a turn waits for
    Mutant("no_wait_cas", "K4"),
    Mutant("epoch_gate", "K5"),
    Mutant("no_timeout_sweep", "K11"),
    Mutant("resume_at_once", "K15"),
    Mutant("no_recheck", "K16"),
    Mutant("commands_die", "K18"),
    Mutant("early_dropped", "K3 L0-112"),
    Mutant("early_forgotten", "K3 L0-112"),
    Mutant("no_token", "S14"),
    Mutant("blind_retry", "K14"),
    Mutant("defer_uncapped", "L0-64"),
    # ends of phases
    Mutant("phase_end_lost", "LC-22 LC-32", hooks=True),
    Mutant("phase_signals_lost", "LC-02", hooks=True),
    Mutant("terminates_forgotten", "LC-65", hooks=True),
    # children
    Mutant("child_not_reported", "K4"),
    Mutant("child_reported_twice", "K4"),
    Mutant("no_report_sweep", "K10"),
    Mutant("children_run_on", "K12"),
    Mutant("children_forced", "K12"),
    Mutant("force_softened", "K12"),
    Mutant("cycles_allowed", "G-74"),
    Mutant("no_fail_fast", "L0-38"),
    # stops
    Mutant("stop_no_check", "K12"),
    Mutant("stop_lost", "K12"),
    Mutant("stop_forgotten", "K12"),
    Mutant("stop_not_delivered", "K12"),
    Mutant("force_delayed", "K12"),
    Mutant("no_stop_sweep", "K12"),
    Mutant("stopped_run_wakes", "K24"),
    # budgets
    Mutant("reserve_ignored", "S12"),
    Mutant("reserve_kept", "S12"),
    Mutant("commands_free", "S12"),
    # circuit breakers
    Mutant("trials_unbounded", "CB-04"),
    Mutant("trials_kept", "CB-04"),
    Mutant("open_admits", "CB-06"),
    Mutant("failures_forgotten", "CB-02"),
    Mutant("rate_ignored", "RTE-08"),
    Mutant("tokens_free", "RTE-08"),
    Mutant("rejected_taken_over", "CB-06 G-24"),
    # limits, pruning
    Mutant("queue_unbounded", "S11"),
    Mutant("depth_unbounded", "G-74"),
    Mutant("cards_unbounded", "S11"),
    Mutant("running_unbounded", "S11"),
    Mutant("prune_needed", "S11", maintenance=True),
)}  # fmt: skip


def hunt(mutant: Mutant, backend: Backend, seeds: range) -> Result | None:
    """Find the first failure that detects this mutant, or None. backend: contains the mutant."""
    for seed in seeds:
        result = simulate(mutant.case(seed), backend)
        if result.violations:
            return result
    return None

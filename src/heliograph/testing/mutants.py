"""Rules of the kernel taken out one at a time: the simulator has to find each of them.

A mutant is a bug in the twin, the same bug in the SQL as a replacement of its
text, or a lie told by the runtime. A simulator that finds none of them has shown
nothing when it finds no failure; `tests/simulator/test_mutants.py` runs them all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from heliograph.ledger.install import kernel_sql
from heliograph.testing.backend import Backend
from heliograph.testing.simulate import Case, Result, simulate
from heliograph.testing.twin import Twin


@dataclass(frozen=True, slots=True)
class Mutant:
    """`bugs` are the twin's names for it, `sql` pairs of what stands in the kernel and what would stand there instead."""

    name: str
    rules: str
    bugs: tuple[str, ...] = ()
    sql: tuple[tuple[str, str], ...] = ()
    repeats_once: bool = False

    def twin(self) -> Twin:
        return Twin(self.bugs)

    def kernel(self) -> str:
        """The kernel with this rule taken out. Raises ValueError when the SQL no longer reads as it did here."""
        text = kernel_sql()
        for old, new in self.sql:
            pattern = re.compile(
                r"\s+".join(re.escape(word) for word in old.split())
            )  # however it is broken into lines
            if (count := len(pattern.findall(text))) != 1:
                raise ValueError(f"mutant {self.name}: this stands {count} times in the kernel: {old!r}")
            text = pattern.sub(lambda _: new, text)  # noqa: B023  used before the next turn of the loop
        return text

    def case(self, seed: int) -> Case:
        return replace(Case(seed), repeats_once=self.repeats_once)


_EVENT_WRITTEN = "    if v_head.active_agent_turn_id = p_turn_id then\n"
_FORGET_EVENT = (
    "    if {when} then\n        delete from heliograph.outbox where agent_turn_id = p_turn_id;\n    end if;\n"
)

MUTANTS: dict[str, Mutant] = {m.name: m for m in (
    Mutant("no_bump", "K6 K7", ("no_bump",), (
        ("turn_epoch = h.turn_epoch + 1, owner = p_worker", "turn_epoch = h.turn_epoch, owner = p_worker"),
        ("set status = 'dispatched', turn_epoch = turn_epoch + 1, owner = null", "set status = 'dispatched', owner = null"))),
    Mutant("finish_no_gate", "K1", ("finish_no_gate",), ((
        "if not heliograph._owns(p_project, v_item ->> 'agent_id', v_item ->> 'turn_id', (v_item ->> 'epoch')::bigint) then\n"
        "            v_outcome",
        "if not exists (select from heliograph.agent_state_head where project_id = p_project\n"
        "               and agent_id = v_item ->> 'agent_id' and active_agent_turn_id = v_item ->> 'turn_id') then\n"
        "            v_outcome"),)),
    Mutant("ungated_append", "K2", ("ungated_append",), ((
        "if not heliograph._owns(p_project, v_item ->> 'agent_id', v_item ->> 'turn_id', (v_item ->> 'epoch')::bigint) then\n"
        "            v_answer",
        "if false then\n            v_answer"),)),
    Mutant("finish_splits_event", "K1", ("finish_splits_event",), (
        (_EVENT_WRITTEN, _FORGET_EVENT.format(when="p_card_id not like '%\\_end'") + _EVENT_WRITTEN),)),
    Mutant("kernel_end_without_event", "K1 K19", ("kernel_end_without_event",), (
        (_EVENT_WRITTEN, _FORGET_EVENT.format(when="p_card_id like '%\\_end'") + _EVENT_WRITTEN),)),
    Mutant("no_lease_sweep", "K7", ("no_lease_sweep",), (("and lease_until <= p_now", "and false"),)),
    Mutant("no_ttl_sweep", "K19", ("no_ttl_sweep",), (("and t.expires_at <= p_now", "and false"),)),
    Mutant("no_chain", "K8 K10", ("no_chain", "no_queued_sweep"), (
        ("v_targets := heliograph._dispatch_next(p_project, array[v_item ->> 'agent_id'], p_now)\n                || ",
         "v_targets := "),
        ("return heliograph._dispatch_next(p_project, array[v_turn.agent_id], v_now);", "return '{}';"),
        ("where h.project_id = p_project and h.status = 'idle'\n           and h.agent_id in",
         "where false and h.agent_id in"))),
    Mutant("no_bell_sweep", "K10", ("no_bell_sweep",), (
        ("where project_id = p_project and status = 'dispatched' and moved_at <=", "where false and moved_at <="),)),
    Mutant("recovery_loses_place", "K22", ("recovery_loses_place",), (
        ("owner = null, lease_until = null,\n               moved_at = v_now",
         "owner = null, lease_until = null, ready_at = v_now, moved_at = v_now"),)),
    Mutant("attempts_unbounded", "K19", ("attempts_unbounded",), (
        ("if v_head.attempts + 1 >= v_head.max_attempts then", "if false then"),)),
    Mutant("no_version_guard", "K24", ("no_version_guard",), ((
        "elsif (select version from heliograph.runs where project_id = p_project and run_id = v_run_id)\n"
        "              is distinct from (v_item #>> '{reaction,version}')::bigint then",
        "elsif false then"),)),
    Mutant("react_unguarded", "K24 K25", ("react_unguarded",), ((
        "if (select version from heliograph.runs where project_id = p_project and run_id = v_item ->> 'run_id')\n"
        "           = (v_item #>> '{reaction,version}')::bigint then",
        "if true then"),)),
    Mutant("no_owed", "K25", ("no_owed",), (
        ("'name', 'agent:failed', 'agent', h.agent_name, 'owed', true,", "'name', 'agent:failed', 'agent', h.agent_name,"),
        ("signal_seq = signal_seq + 1, owed = owed + 1, open_turns", "signal_seq = signal_seq + 1, open_turns"))),
    Mutant("ends_with_open_turns", "K26", ("ends_with_open_turns",), (
        ("'memory', memory, 'open_turns', open_turns,", "'memory', memory, 'open_turns', least(open_turns, 1),"),)),
    Mutant("open_turns_miscounted", "K27", ("open_turns_miscounted",), (
        ("open_turns = open_turns - 1, version = version + 1", "version = version + 1"),)),
    Mutant("append_repeats", "K2", ("append_repeats",), (
        ("if v_drafts = '[]' or v_lease.said > (p_item ->> 'said')::integer then", "if v_drafts = '[]' then"),)),
    Mutant("enqueue_no_dedup", "L0-06", ("enqueue_no_dedup",), (
        ("elsif exists (select from heliograph.agent_turns\n"
         "                       where project_id = p_project and agent_turn_id = v_message ->> 'turn_id') then",
         "elsif false then"),)),
    Mutant("dispatch_lifo", "L0-34", ("dispatch_lifo",), (
        ("order by t.agent_id, t.queue_seq\n    ), moved", "order by t.agent_id, t.queue_seq desc\n    ), moved"),)),
    Mutant("once_runs_twice", "K14", repeats_once=True),
)}  # fmt: skip


def hunt(mutant: Mutant, backend: Backend, seeds: range) -> Result | None:
    """The first failure that shows this mutant, or None when it went unseen. `backend` has the bug already."""
    for seed in seeds:
        result = simulate(mutant.case(seed), backend)
        if result.violations:
            return result
    return None

"""Check the runs whose agents exceed a limit (trials.py) and the runs that clients stop (doomed.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heliograph.runtime import Runtime
from tests.journeys.chaos.client_actions import GRACE_SECONDS
from tests.journeys.chaos.doomed import BY_TURN
from tests.journeys.chaos.marks import read_lines
from tests.journeys.chaos.trials import ENDINGS, LIMITS, PURSE
from tests.journeys.chaos.verdict import Verdict, listed

STOP_SECONDS = 0.75 * GRACE_SECONDS  # a turn that receives a stop ends by then, however often its worker dies

# States that must never occur, not even during the faults: in all applications
AT_ANY_TIME: Mapping[str, str] = {
    "a turn was tried more often than it may be": """
        select agent_turn_id from heliograph.agent_turns where attempts >= max_attempts""",
    "a turn was put off more often than the project allows": f"""
        select agent_turn_id from heliograph.agent_turns where defer_count > {LIMITS["deferrals_max"]}""",
    "a turn was delegated deeper than the project allows": f"""
        select agent_turn_id from heliograph.agent_turns where depth > {LIMITS["depth_max"]}""",
    "a turn has more cards than the project allows": f"""
        select agent_turn_id from heliograph.agent_turns where card_count > {LIMITS["cards_max"]}""",
    "an agent has more turns waiting than the project allows": f"""
        select agent_id from heliograph.agent_turns where state = 'queued' group by 1 having count(*) > {LIMITS["queue_max"]}""",
    "a turn waits for one that cannot begin before it ends": """
        select p.agent_turn_id from heliograph.agent_turns p join heliograph.agent_turns c on c.parent_turn_id = p.agent_turn_id
         where c.agent_id = p.agent_id""",
    "an agent's turns were not begun in the order of its queue": """
        select agent_id from (
          select agent_id, epoch < max(epoch) over (partition by agent_id order by queue_seq rows between unbounded preceding and 1 preceding) as is_late
            from (select t.agent_id, t.queue_seq, min(l.turn_epoch) as epoch from heliograph.agent_turns t
                    join heliograph.leases l using (project_id, agent_id, agent_turn_id) group by 1, 2) begun) x where is_late""",
    # a turn is owned again after it lost its owner, was deferred, or was resumed: by all results of a step, scout by each
    "a turn was owned more often than it had reasons": """
        select agent_turn_id from heliograph.agent_turns t
          join (select agent_turn_id, count(*) as times from heliograph.leases group by 1) l using (agent_turn_id)
          left join (select agent_turn_id, count(distinct tool_call_id) as calls, count(distinct step_id) as steps
                       from heliograph.turn_waiting_tools where kind <> 'inline' and state = 'resolved' group by 1) w using (agent_turn_id)
         where l.times > 1 + t.attempts + t.defer_count + coalesce(case when t.agent_id like '%/scout' then w.calls else w.steps end, 0)""",
    "a turn that was told to stop waits for something": """
        select agent_id from heliograph.agent_state_head where status in ('suspended', 'dispatched') and stop_requested_at is not null""",
    "a turn slept although nothing was left to wake it": """
        select agent_turn_id from heliograph.agent_inbox where message_type = 'timeout' and correlation_id = agent_turn_id""",
    "something was said twice": """
        select turn_id from heliograph.signal_log where name = 'agent:progress' and agent in ('teller', 'babbler')
         group by turn_id, payload ->> 'message' having count(*) > 1""",
    "a former owner spoke": """
        select turn_id from (
          select turn_id, attempt < max(attempt) over (partition by turn_id order by seq rows between unbounded preceding and 1 preceding) as is_former
            from (select turn_id, seq, split_part(payload ->> 'message', ' ', 1)::integer as attempt
                    from heliograph.signal_log where name = 'agent:progress' and agent in ('teller', 'babbler')) said) x where is_former""",
    "a budget paid for more calls than it had": f"""
        select w.run_id from heliograph.wait_overview w
         where split_part(w.agent_id, '/', 2) in ('purse', 'spender') and (w.kind = 'tool' or w.kind = 'inline' and w.status = 'success')
         group by w.run_id having count(*) > {PURSE}""",
    "a stopped run woke somebody": """
        select w.run_id from heliograph.signal_log w join heliograph.signal_log s using (project_id, run_id)
          join heliograph.runs r using (project_id, run_id)
         where r.target = 'doomed' and s.name = 'workflow:terminating' and w.name = 'agent:activated' and w.seq > s.seq""",
    "a turn went on after it was stopped": f"""
        select t.agent_turn_id from heliograph.agent_turns t
          join heliograph.signals s on s.run_id = t.run_id and s.agent_turn_id = t.agent_turn_id
         cross join lateral jsonb_array_elements(s.entries) e
         where e ->> 'name' = 'halt' and t.finished_at > s.at + make_interval(secs => {STOP_SECONDS})""",
}
AFTERWARDS: Mapping[str, str] = {
    "a result that was there before its call did not come": """
        select run_id from heliograph.runs where target = 'trials' and state -> 'told' is distinct from '42'""",
    "what was said was not heard each time": """
        select run_id from heliograph.runs r left join (
          select run_id, count(*) as times from heliograph.signal_log where name = 'agent:progress' and agent = 'teller' group by 1) s using (run_id)
         where r.target = 'trials' and coalesce(s.times, 0) is distinct from (r.state ->> 'heard')::integer""",
    "an end by the kernel was not reacted to": """
        select r.run_id from heliograph.runs r
          join heliograph.agent_turns t on t.run_id = r.run_id and t.agent_id = r.run_id || '/poison'
         where (t.outcome = 'failed') <> (r.state ? 'mourned')""",
    "a run that was stopped did not end as canceled": f"""
        select run_id from heliograph.runs where target = 'doomed' and (state ->> 'way')::integer <> {BY_TURN} and outcome is distinct from 'canceled'""",
    "a turn that was stopped ended in another way": """
        select t.agent_turn_id from heliograph.agent_turns t join heliograph.runs r using (project_id, run_id)
          join heliograph.agent_state_head h using (project_id, agent_id)
         where r.target = 'doomed' and t.outcome <> 'canceled'
           and not (h.agent_name in ('listener', 'ping', 'pong') and t.outcome = 'success')""",
}


async def judge_trials(runtime: Runtime, greeted: Path) -> list[Verdict]:
    return [
        Verdict("every bound of the project and of a turn was kept", await violations(runtime.database, AT_ANY_TIME)),
        Verdict("every trial ended as it must, and every stop was the end", await violations(runtime.database, AFTERWARDS)
                + listed("a trial ended in another way", await _unexpected_ends(runtime))),
        await _greeted(runtime, greeted),
    ]  # fmt: skip


async def violations(database: Any, queries: Mapping[str, str]) -> list[str]:
    """Return the violations that the queries find. database: an object with `fetch`."""
    return [
        problem
        for what, query in queries.items()
        for problem in listed(what, {r[0] for r in await database.fetch(query)})
    ]


async def _unexpected_ends(runtime: Runtime) -> list[str]:
    ends = await runtime.database.fetch(
        """select t.agent_turn_id, h.agent_name, t.outcome from heliograph.agent_turns t
             join heliograph.runs r using (project_id, run_id) join heliograph.agent_state_head h using (project_id, agent_id)
            where r.target = 'trials'"""
    )
    return [f"{name} {turn_id} {outcome}" for turn_id, name, outcome in ends if outcome not in ENDINGS.get(name, ())]


async def _greeted(runtime: Runtime, path: Path) -> Verdict:
    """Check that each acknowledged message became one turn, even if it was sent twice."""
    sent = set(read_lines(path))
    turns = [row[0] for row in await runtime.database.fetch(
        """select t.agent_turn_id from heliograph.agent_turns t join heliograph.runs r using (project_id, run_id)
            where t.agent_id = r.run_id || '/guest' and r.state ->> 'greeted' = 'hello'""")]  # fmt: skip
    problems = listed("an acknowledged message was not answered", sent - set(turns))
    problems += listed("a message became two turns", {turn for turn in turns if not turn.startswith("turn_guest_")})
    return Verdict("every acknowledged message was answered, once", problems, f"{len(sent)} messages")

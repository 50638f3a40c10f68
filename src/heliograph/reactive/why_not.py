"""Explain why an agent of a run did not wake: the signals that came near, and the condition that each did not meet. Pure.

The facts come from the ledger; with the application's definition, the agent's patterns are compared with the names of the run's signals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

from heliograph.codes import MAX_ACTIVATIONS
from heliograph.definitions.agent import AgentSpec
from heliograph.error_text import counted, printable
from heliograph.errors import NotFound
from heliograph.ids import split_signal_id
from heliograph.key_patterns import json_without_secrets
from heliograph.reactive.workflow import Workflow, hint_of_agents
from heliograph.signals.guard_record import place_of_guard, recorded_guard, recorded_reads
from heliograph.signals.pattern import Pattern

NEAR_MAX = 3

Finding: TypeAlias = "dict[str, Any]"


def explain(facts: Mapping[str, Any], workflow: Workflow | None) -> list[Finding]:
    """Return the findings about an agent, the most specific first: {code, problem, next_step}, with signal and name of a signal that came near.

    facts: what `CausalReader.why_not` returns. workflow: the application; None to use the ledger alone.
    Raises NotFound (`unknown_agent`) if neither the run nor the application has the agent.
    """
    agent = facts["agent"]
    spec = None if workflow is None else workflow.agents.get(agent)
    if spec is None and not facts["is_agent"]:
        named = f"helio run show {facts['run_id']} lists its agents"
        known = named if workflow is None else hint_of_agents(agent, workflow.agents)
        raise NotFound(f"run {facts['run_id']} has no agent {agent}; {known}", code="unknown_agent")
    findings = [*_of_run(facts, spec), *_of_skips(facts)]
    if workflow is not None and spec is not None:
        findings += _of_patterns(facts, workflow, spec)
    elif not findings:
        findings.append(_finding("no_record", f"run {facts['run_id']} records nothing about {agent}",
                                 "pass the application (--app FILE.py:app) to compare its patterns with the signals of the run"))  # fmt: skip
    return findings


def _finding(code: str, problem: str, next_step: str, **more: Any) -> Finding:
    return {"code": code, "problem": printable(problem), "next_step": printable(next_step), **more}


def _of_run(facts: Mapping[str, Any], spec: AgentSpec | None) -> Iterator[Finding]:
    run_id, agent = facts["run_id"], facts["agent"]
    if facts["activations"]:
        yield _finding("agent_ran", f"agent {agent} did run: {counted(facts['activations'], 'activation')} in run {run_id}",
                       f"helio turn list --run {run_id} lists its turns")  # fmt: skip
    if not facts["is_agent"]:
        yield _finding("not_in_run", f"run {run_id} began before the application had the agent {agent}",
                       "start a new run: a run keeps the agents that it started with")  # fmt: skip
    if spec is not None and not spec.patterns:
        yield _finding("no_subscription", f"agent {agent} subscribes to no signal: delegations and messages alone wake it",
                       f"delegate to {agent}, send it a message, or give it activate_on")  # fmt: skip
    if facts["code"] == MAX_ACTIVATIONS:
        yield _finding("limit_reached", f"run {run_id} stopped: {facts['stopped_by']}",
                       "raise max_activations of the application, or find the loop with helio signal why")  # fmt: skip
    elif _is_stopping(facts):
        yield _finding("run_terminating", f"run {run_id} terminates and activates no more agents: {facts['stopped_by']}",
                       f"helio signal why {facts['terminating'] or 'SIGNAL'} shows the cause", signal=facts["terminating"])  # fmt: skip
    elif facts["status"] != "ended":
        pending = (
            f", and {facts['pending_reactions']} signals wait for a worker to react"
            if facts["pending_reactions"]
            else ""
        )
        yield _finding("run_running", f"run {run_id} still runs{pending}: the agent may yet wake",
                       f"wait for its end with helio signal tail --run {run_id} --follow, and repeat the command")  # fmt: skip


def _is_stopping(facts: Mapping[str, Any]) -> bool:
    """Whether the run wakes no more agents. A session that was closed does, and has no reason to stop (decision 0168)."""
    return facts["stopped_by"] is not None and (facts["status"] == "terminating" or facts["terminating"] is not None)


def _of_skips(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """The signals that matched but did not pass the guard."""
    for skip in facts["skips"]["last"]:
        guard = recorded_guard(skip) or {}
        read = ", ".join(map(_describe_read, recorded_reads(guard)))
        name = f" {skip['name']}" if "name" in skip else ""
        yield _finding(
            "guard_false" if guard.get("verdict") is False else "guard_raised" if "guard" in skip else "skipped",
            f"{skip.get('cause')}{name} matched, but the agent was skipped: {skip['reason']}{place_of_guard(guard)}" + (f" ({read})" if read else ""),
            f"helio signal why {skip['id']} shows how the state came about", signal=skip.get("cause"), name=skip.get("name"),
            reads=recorded_reads(guard),
        )  # fmt: skip


def _describe_read(read: Mapping[str, Any]) -> str:
    if "value" in read:
        return f"{read['key']} = {json_without_secrets(read['value']).decode()}"
    return f"{read['key']} has {read['bytes']} bytes" if "bytes" in read else f"{read['key']} is missing"


def _of_patterns(facts: Mapping[str, Any], workflow: Workflow, spec: AgentSpec) -> Iterator[Finding]:
    """The patterns that no signal matched, the members that a join lacks, and matches without a record."""
    names = {each["name"]: each for each in facts["names"]}
    for pattern in spec.activate_on:
        matching = [each for name, each in names.items() if pattern.matches(name)]
        if not matching:
            yield _never_emitted(pattern, "activate_on", names, workflow, facts["run_id"])
        elif facts["is_agent"] and not facts["activations"] and not facts["skips"]["count"]:
            yield _unanswered(facts, pattern, matching)
    lacking = [n for n in range(len(spec.activate_when_all)) if n not in facts["joins"]]
    if not spec.activate_when_all or (len(lacking) == len(spec.activate_when_all) and facts["activations"]):
        return
    met = [spec.activate_when_all[n].text for n in facts["joins"] if n < len(spec.activate_when_all)]
    for n in lacking:
        pattern = spec.activate_when_all[n]
        if any(pattern.matches(name) for name in names) and facts["skips"]["count"]:
            continue  # the join was complete, and the guard skipped the agent
        missing = _never_emitted(pattern, "activate_when_all", names, workflow, facts["run_id"])
        others = f"; {', '.join(met)} matched" if met else ""
        yield missing | {
            "code": "join_incomplete",
            "problem": f"activate_when_all still lacks {pattern.text}{others}: {missing['problem']}",
        }


def _unanswered(facts: Mapping[str, Any], pattern: Pattern, matching: list[Finding]) -> Finding:
    newest = max(matching, key=lambda each: _position(each["last"]))
    since = facts["terminating"] if _is_stopping(facts) else None
    if since is not None and _position(newest["last"]) >= _position(since):
        problem = f"{newest['last']} {newest['name']} matches {pattern.text}, but came after the run began to terminate"
        return _finding("after_terminating", problem, f"helio signal why {since} shows the cause",
                        signal=newest["last"], name=newest["name"], pattern=pattern.text)  # fmt: skip
    problem = (
        f"{newest['last']} {newest['name']} matches {pattern.text}, but nothing was recorded about {facts['agent']}"
    )
    return _finding("not_evaluated", problem, "compare this definition with the one that the run's workers had; an agent's own activation, "
                    "and a signal without a reaction yet, wake nobody", signal=newest["last"], name=newest["name"], pattern=pattern.text)  # fmt: skip


def _never_emitted(
    pattern: Pattern, field: str, names: Mapping[str, Finding], workflow: Workflow, run_id: str
) -> Finding:
    near = nearest_names(pattern, names)
    emitters = sorted(a.name for a in workflow.agents.values() if any(pattern.matches(name) for name in a.emits))
    problem = f"no signal of the run matches {pattern.text}"
    if near:
        problem += f"; the nearest is {near[0]} ({names[near[0]]['last']})"
    if emitters:
        next_step = (
            f"find out why {' and '.join(emitters)} did not emit it: helio signal why-not {run_id} {emitters[0]}"
        )
    elif near:
        next_step = f"did you mean {near[0]}? No agent declares a signal that matches {pattern.text}"
    else:
        next_step = f"no agent declares a signal that matches {pattern.text}: add it to emits, or change {field}"
    return _finding("never_emitted", problem, next_step, pattern=pattern.text, nearest=near)


def nearest_names(pattern: Pattern, names: Iterable[str]) -> list[str]:
    """Return at most three names: first those that differ from the pattern in one of several segments, then similarly spelled ones."""
    wanted = pattern.text.split(":")
    known = sorted(names)
    one_off = [name for name in known if len(wanted) > 1 and _differing(wanted, name.split(":")) == 1]
    return list(dict.fromkeys([*get_close_matches(pattern.text, one_off, NEAR_MAX, 0.0),
                               *get_close_matches(pattern.text, known, NEAR_MAX)]))[:NEAR_MAX]  # fmt: skip


def _differing(wanted: list[str], segments: list[str]) -> int | None:
    """How many segments differ; None for names of another length."""
    if len(wanted) != len(segments):
        return None
    return sum(want not in ("*", has) for want, has in zip(wanted, segments, strict=True))


def _position(signal_id: str) -> int:
    place = split_signal_id(signal_id)
    return 0 if place is None else place[1]

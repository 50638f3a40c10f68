"""`helio check` and `helio graph`: warnings about an application, and which agent wakes which, without running it.

Agents wake each other with signals, and with delegations to the agents that they name. Programs wake agents with messages.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

from heliograph.cli.load_target import load_target
from heliograph.cli.manifests import configure
from heliograph.cli.output import block, json_line, line
from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.templates import placeholders
from heliograph.error_text import counted, safe_repr
from heliograph.reactive.workflow import Workflow
from heliograph.turn.calls import DELEGATION
from heliograph.turn.earlier_turns import MESSAGE

_UNSAFE = str.maketrans('"\\<>#&[]|', "'/()_+()/")


@dataclass(frozen=True, slots=True)
class Wake:
    """An agent wakes another one. cause: an agent; None for the runtime and for programs. signal: the name, or the pattern."""

    cause: str | None
    signal: str
    agent: str


def check(options: Namespace) -> int:
    """Print the warnings of an application. Returns 0; with --strict, 1 if there are any."""
    workflow = _load(options)
    if options.json:
        json_line(
            "application", {"name": workflow.name, "agents": list(workflow.agents), "warnings": workflow.warnings}
        )
    else:
        for warning in workflow.warnings:
            line(f"warning: {warning}")
        line(f"{workflow.name}: {counted(len(workflow.agents), 'agent')}, {counted(len(workflow.warnings), 'warning')}")
    return 1 if options.strict and workflow.warnings else 0


def graph(options: Namespace) -> int:
    """Print which agent wakes which: as text, or for Mermaid or Graphviz."""
    workflow = _load(options)
    edges = wakes_of(workflow)
    if options.json:
        for edge in edges:
            json_line("wake", {"from": edge.cause, "signal": edge.signal, "to": edge.agent})
        return 0
    draw = {"text": _text, "mermaid": _mermaid, "dot": _dot}[options.format]
    block("\n".join(draw(workflow, edges)))
    for warning in workflow.warnings if options.format == "text" else ():
        line(f"warning: {warning}")
    return 0


def wakes_of(workflow: Workflow) -> list[Wake]:
    """Which agent wakes which, in the order of the agents. The cause is None for messages, and for patterns that match no signal of the application."""
    emitted = [(agent.name, name) for agent in workflow.agents.values() for name in agent.emits]
    emitted += [(agent.name, f"state:{key}:changed") for agent in workflow.agents.values() for key in agent.updates]
    found: list[Wake] = []
    for agent in workflow.agents.values():
        for pattern in agent.patterns:
            causes = [Wake(cause, name, agent.name) for cause, name in emitted if pattern.matches(name)]
            found += causes or [Wake(None, pattern.text, agent.name)]
        found += [
            Wake(each.name, DELEGATION, agent.name) for each in workflow.agents.values() if agent.name in each.agents
        ]
        if _takes_messages(agent):
            found.append(Wake(None, MESSAGE, agent.name))
    return list(dict.fromkeys(found))


def _takes_messages(agent: AgentSpec) -> bool:
    """Whether an agent is meant for messages: it waits for requests, or its prompt has the text of a message."""
    return not agent.patterns or (isinstance(agent.prompt, str) and "message" in placeholders(agent.prompt))


def _load(options: Namespace) -> Workflow:
    return configure(load_target(options.app, options), options).workflow


def _text(workflow: Workflow, edges: list[Wake]) -> Iterator[str]:
    for cause in (None, *workflow.agents):
        own = [edge for edge in edges if edge.cause == cause]
        if cause is None and not own:
            continue
        yield "the runtime or a program" if cause is None else safe_repr(cause)
        for edge in own:
            yield f"    {_described(workflow, edge)} -> {safe_repr(edge.agent)}"
        if cause is not None and not own:
            yield "    wakes no agent"


def _described(workflow: Workflow, edge: Wake) -> str:
    """The signal of a line; a phrase for delegations and messages."""
    if edge.signal == DELEGATION:
        return "a delegation"
    if edge.cause is None and edge.signal == MESSAGE:
        return "a message of a session" if workflow.agents[edge.agent].patterns else "a delegation or a message"
    return edge.signal


def _mermaid(workflow: Workflow, edges: list[Wake]) -> Iterator[str]:
    yield "flowchart LR"
    yield from _drawn(workflow, edges, _MERMAID)


def _dot(workflow: Workflow, edges: list[Wake]) -> Iterator[str]:
    yield "digraph agents {"
    yield "  node [shape=box];"
    yield from _drawn(workflow, edges, _DOT)
    yield "}"


@dataclass(frozen=True)
class _Language:
    """The lines of a language: of an agent, of a signal that wakes one from outside, and of one that an agent emits."""

    agent: str
    from_outside: tuple[str, ...]
    from_agent: str


_MERMAID = _Language(
    '  {agent}["{name}"]', ('  {signal}(("{name}")) --> {agent}',), '  {cause} -- "{name}" --> {agent}'
)
_DOT = _Language(
    '  {agent} [label="{name}"];',
    ('  {signal} [label="{name}", shape=ellipse];', "  {signal} -> {agent};"),
    '  {cause} -> {agent} [label="{name}"];',
)


def _drawn(workflow: Workflow, edges: list[Wake], language: _Language) -> Iterator[str]:
    numbers = {name: f"n{number}" for number, name in enumerate(workflow.agents, 1)}
    for name, number in numbers.items():
        yield language.agent.format(agent=number, name=_escaped(name))
    for at, edge in enumerate(edges, 1):
        shape = language.from_outside if edge.cause is None else (language.from_agent,)
        for template in shape:
            yield template.format(signal=f"s{at}", name=_escaped(edge.signal), agent=numbers[edge.agent],
                              cause=None if edge.cause is None else numbers[edge.cause])  # fmt: skip


def _escaped(text: str) -> str:
    return safe_repr(text, 80).translate(_UNSAFE)

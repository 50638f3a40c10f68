"""`helio check` and `helio graph`: warnings about an application, and which agent wakes which, without running it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

from heliograph.cli.load_target import load_target
from heliograph.cli.manifests import configure
from heliograph.cli.output import block, json_line, line
from heliograph.error_text import counted, safe_repr
from heliograph.reactive.workflow import Workflow

START = "workflow:start"
_UNSAFE = str.maketrans('"\\<>#&[]|', "'/()_+()/")


@dataclass(frozen=True, slots=True)
class Wake:
    """An agent wakes another one. cause: an agent; None for the runtime and for signals from outside. signal: the name, or the pattern."""

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
    """Which agent wakes which, in the order of the agents. A pattern that matches no signal of the application has the cause None."""
    emitted = [(agent.name, name) for agent in workflow.agents.values() for name in agent.emits]
    emitted += [(agent.name, f"state:{key}:changed") for agent in workflow.agents.values() for key in agent.updates]
    found: list[Wake] = []
    for agent in workflow.agents.values():
        for pattern in agent.patterns:
            causes = [Wake(cause, name, agent.name) for cause, name in emitted if pattern.matches(name)]
            found += causes or [Wake(None, pattern.text, agent.name)]
    return list(dict.fromkeys(found))


def _load(options: Namespace) -> Workflow:
    return configure(load_target(options.app, options), options).workflow


def _text(workflow: Workflow, edges: list[Wake]) -> Iterator[str]:
    for cause in (None, *workflow.agents):
        own = [edge for edge in edges if edge.cause == cause]
        if cause is None and not own:
            continue
        yield "the runtime or a program" if cause is None else safe_repr(cause)
        for edge in own:
            yield f"    {edge.signal} -> {safe_repr(edge.agent)}"
        if cause is not None and not own:
            yield "    wakes no agent"


def _mermaid(workflow: Workflow, edges: list[Wake]) -> Iterator[str]:
    yield "flowchart LR"
    numbers = {name: f"n{number}" for number, name in enumerate(workflow.agents, 1)}
    for name, number in numbers.items():
        yield f'  {number}["{_escaped(name)}"]'
    for at, edge in enumerate(edges, 1):
        if edge.cause is None:
            yield f'  s{at}(("{_escaped(edge.signal)}")) --> {numbers[edge.agent]}'
        else:
            yield f'  {numbers[edge.cause]} -- "{_escaped(edge.signal)}" --> {numbers[edge.agent]}'


def _dot(workflow: Workflow, edges: list[Wake]) -> Iterator[str]:
    yield "digraph agents {"
    yield "  node [shape=box];"
    numbers = {name: f"n{number}" for number, name in enumerate(workflow.agents, 1)}
    for name, number in numbers.items():
        yield f'  {number} [label="{_escaped(name)}"];'
    for at, edge in enumerate(edges, 1):
        if edge.cause is None:
            yield f'  s{at} [label="{_escaped(edge.signal)}", shape=ellipse];'
            yield f"  s{at} -> {numbers[edge.agent]};"
        else:
            yield f'  {numbers[edge.cause]} -> {numbers[edge.agent]} [label="{_escaped(edge.signal)}"];'
    yield "}"


def _escaped(text: str) -> str:
    return safe_repr(text, 80).translate(_UNSAFE)

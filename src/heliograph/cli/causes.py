"""`helio signal why|tree|graph|why-not`: the causes and effects of signals, and why an agent did not wake."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from heliograph.cli.causal_graph import draw_graph
from heliograph.cli.existing_database import open_existing
from heliograph.cli.output import block, json_line, line, note, width
from heliograph.error_text import printable
from heliograph.errors import NotFound
from heliograph.ledger.reader import Reader
from heliograph.signals.guard_record import place_of_guard, recorded_guard, recorded_reads
from heliograph.signals.model import from_wire
from heliograph.signals.signal_text import json_text, line_payload, meaning
from heliograph.signals.trace import draw_tree

_READ_WIDTH, _LINE_WIDTH = 60, 100
_VERDICTS = {"True": "true", "False": "false", "None": "no verdict, it raised"}


def why(options: Namespace) -> int:
    async def ask() -> dict[str, Any]:
        async with open_existing(f"signal {options.signal}") as reader:
            try:
                return await reader.causes.why(options.signal, options.limit)
            except NotFound as error:
                raise await _named_otherwise(reader, options.signal) or error from None

    answer = asyncio.run(ask())
    if options.json:
        json_line("causes", answer)
        return 0
    for text in chain_lines(answer["chain"]):
        line(text)
    if answer["end"] == "limit":
        note(f"the causes continue: helio signal why {printable(answer['next'])}")
    elif answer["end"] != "root":
        line(
            printable(f"because of {answer['next']}")
            + ", which the log does not have"
            + (" any more: it is pruned" if answer["end"] == "pruned" else "")
        )
    return 0


def tree(options: Namespace) -> int:
    answer = asyncio.run(_page(options, "tree"))
    if options.json:
        json_line("effects", answer)
        return 0
    for text in draw_tree([from_wire(each) for each in answer["signals"]]):
        line(text)
    _note_more(options, "tree", answer)
    return 0


def graph(options: Namespace) -> int:
    answer = asyncio.run(_page(options, "graph"))
    if options.json:
        json_line("effects", answer)
        return 0
    block("\n".join(draw_graph(answer, options.format)))
    _note_more(options, "graph", answer)
    return 0


def why_not(options: Namespace) -> int:
    from heliograph.cli.load_application import load_app  # slow, as is the application
    from heliograph.reactive.why_not import explain

    workflow = None if options.app is None else load_app(options.app).workflow

    async def ask() -> dict[str, Any]:
        async with open_existing(f"run {options.run}") as reader:
            return await reader.causes.why_not(options.run, options.agent)

    facts = asyncio.run(ask())
    findings = explain(facts, workflow)
    if options.json:
        json_line("why_not", {**facts, "findings": findings})
        return 0
    for finding in findings:
        line(f"{finding['code']}: {finding['problem']}")
        line(f"    {finding['next_step']}")
    if not findings:
        line(
            f"no reason found: agent {options.agent} of run {options.run} had a matching signal; "
            f"helio turn list --run {options.run} lists its turns"
        )
    return 0


async def _page(options: Namespace, kind: str) -> dict[str, Any]:
    what = "signal" if options.subject.startswith("sig_") else "run"
    async with open_existing(f"{what} {options.subject}") as reader:
        ask = reader.causes.tree if kind == "tree" else reader.causes.graph
        return await ask(options.subject, options.after, options.limit)


def _note_more(options: Namespace, verb: str, answer: Mapping[str, Any]) -> None:
    if answer["next"] is not None:
        note(
            f"there are more signals: helio signal {verb} {options.subject} --after {answer['next']}, or --limit for longer pages"
        )


async def _named_otherwise(reader: Reader, identifier: str) -> NotFound | None:
    """The error for a run id in place of a signal id; None for any other id."""
    try:
        await reader.run(identifier)
    except NotFound:
        return None
    return NotFound(f"{identifier} is a run, not a signal: helio signal tree {identifier} draws it, "
                    f"helio signal tail --run {identifier} lists its signals", code="unknown_signal")  # fmt: skip


def chain_lines(chain: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a chain of causes, without control characters. A link that activated an agent names it."""
    return map(printable, _chain_lines(chain))


def _chain_lines(chain: list[dict[str, Any]]) -> Iterator[str]:
    for place, (effect, link) in enumerate(pairwise([None, *chain])):
        assert link is not None
        if effect is not None:
            yield "because" if effect["run_id"] == link["run_id"] else f"because, in run {link['run_id']},"
        signal = from_wire(_without_guard(link))
        yield f"{signal.id}  {signal.name}  {line_payload(signal, width(_LINE_WIDTH))}".rstrip()
        woke = "" if effect is None else _woken(effect)
        sender = chain[place + 1]["run_id"] if place + 1 < len(chain) else signal.run_id
        yield f"    {meaning(signal) if sender == signal.run_id else f'A turn of run {sender} sent it.'}{woke}"
        yield from (f"    {text}" for text in _facts_of(link))


def _woken(effect: Mapping[str, Any]) -> str:
    """A sentence that names the agent of an activation; empty for other signals, and for one whose payload is damaged or too large."""
    payload = effect.get("payload")
    if effect["name"] != "agent:activated" or not isinstance(payload, dict) or "agent" not in payload:
        return ""
    return f" It woke {payload['agent']}."


def _without_guard(link: Mapping[str, Any]) -> Mapping[str, Any]:
    """The link for its first line; guard and joined signals have lines of their own."""
    payload = link.get("payload")
    if not isinstance(payload, dict):
        return link
    return {**link, "payload": {key: value for key, value in payload.items() if key not in ("guard", "joined")}}


def _facts_of(link: Mapping[str, Any]) -> Iterator[str]:
    """Yield the turn of a link, its guard and the changes of the state."""
    turn = link.get("turn")
    if turn is not None:
        by = f", delegated by {turn['parent_turn_id']}" if "parent_turn_id" in turn else ""
        yield f"turn {turn['turn_id']}" + (f" of {turn['agent']}" if "agent" in turn else "") + by
    guard = recorded_guard(link.get("payload"))
    if guard is not None:
        verdict = _VERDICTS.get(repr(guard.get("verdict")), "unknown")
        reads = ", ".join(_value(each, "value", "bytes") for each in recorded_reads(guard))
        yield f"guard: {verdict}{place_of_guard(guard)}" + (f"; it read {reads}" if reads else "")
    for member in link.get("joined", []):
        signal = member.get("signal")
        by = (
            f"{member.get('id')}, which the log does not have" if signal is None else f"{signal['id']} {signal['name']}"
        )
        yield f"joined: {member.get('pattern')} by {by}"
    for change in link.get("changes", []):
        yield f"state: {_value(change, 'value', 'value_bytes')}"


def _value(found: Mapping[str, Any], value: str, size: str) -> str:
    """`key = value` of a read or a change."""
    mark = " (untrusted)" if found.get("trust") == "untrusted" else ""
    if value in found:
        return f"{found['key']} = {json_text(found[value], width(_READ_WIDTH))}{mark}"
    return f"{found['key']} ({found[size]} bytes){mark}" if size in found else f"{found['key']} (missing){mark}"

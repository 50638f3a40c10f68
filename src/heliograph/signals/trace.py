"""Questions to a list of signals: what caused this, what came of it, is the log sound, and how does it look.

All of it is pure and takes the signals in the order of the log. Source: SIG-60..SIG-63.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from heliograph.codes import UNKNOWN
from heliograph.errors import NotFound, safe_repr
from heliograph.signals.model import Signal

ROOT_NAME = "workflow:start"
DELTA_NAMES = frozenset({"text:delta", "thinking:delta"})


def chain(signals: Sequence[Signal], identifier: str) -> list[Signal]:
    """The signal, its parent, and so on up to the root: why it happened. Source: SIG-61.

    In a part of a log it ends at the last signal whose parent is not in the part.
    Raises NotFound (unknown_signal) when `identifier` is not there.
    """
    by_id = {signal.id: signal for signal in signals}
    if identifier not in by_id:
        raise NotFound(
            f"no signal '{safe_repr(identifier)}' among these {len(signals)}; `helio signal tail` shows their ids",
            code="unknown_signal",
        )
    steps: dict[str, Signal] = {}  # by id, in the order of the climb: a circle ends it
    signal: Signal | None = by_id[identifier]
    while signal is not None and signal.id not in steps:
        steps[signal.id] = signal
        signal = by_id.get(signal.parent) if signal.parent is not None else None
    return list(steps.values())


def children(signals: Iterable[Signal]) -> dict[str, list[Signal]]:
    """By the id of a parent, the signals it caused in the order of the log; roots are in no list."""
    found: dict[str, list[Signal]] = {}
    for signal in signals:
        if signal.parent is not None:
            found.setdefault(signal.parent, []).append(signal)
    return found


@dataclass(frozen=True, slots=True)
class TurnFailure:
    """A turn that failed or ran out of time, with its whole reason."""

    agent: str
    turn_id: str
    outcome: str
    code: str
    message: str


def failure_of(signal: Signal) -> TurnFailure | None:
    """The failure that an `agent:failed` records; None for any other signal, and for a turn that was stopped."""
    payload: Any = signal.payload
    if signal.name != "agent:failed" or not isinstance(payload, dict) or payload.get("outcome") == "canceled":
        return None
    error: Any = payload.get("error")
    error = error if isinstance(error, dict) else {}
    return TurnFailure(str(payload.get("agent")), signal.turn_id or "", str(payload.get("outcome")),
                       str(error.get("code") or UNKNOWN), str(error.get("message") or ""))  # fmt: skip


def check_trace(signals: Sequence[Signal]) -> list[str]:
    """What is wrong with the whole log of a run; empty when it is sound.

    Sound: `seq` counts from 1 without gaps, ids are unique, all belong to one run, the one
    root is a `workflow:start`, and each other signal has a parent that comes before it.
    """
    problems: list[str] = []
    seen: set[str] = set()
    for position, signal in enumerate(signals, start=1):
        this = f"{signal.name} ({signal.id})"
        if signal.seq != position:
            problems.append(f"{this} has seq {signal.seq} at position {position}")
        if signal.id in seen:
            problems.append(f"{this} has the id of an earlier signal")
        if signal.run_id != signals[0].run_id:
            problems.append(f"{this} belongs to run {signal.run_id}, the first signal to {signals[0].run_id}")
        if signal.parent is not None and signal.parent not in seen:
            problems.append(f"{this} has the parent {signal.parent}, which does not come before it")
        seen.add(signal.id)
    return problems + _check_roots(signals)


def draw_tree(signals: Sequence[Signal], *, show_payload_width: int = 60, collapse_text: bool = True) -> list[str]:
    """What caused what, a line per signal: branch, name, agent, payload, milliseconds since the first signal.

    show_payload_width: characters of payload in a line; 0 leaves payloads out.
    collapse_text: neighbouring deltas of one kind and one agent become one line with their count and joined text.
    A signal whose parent is not in `signals` is drawn as a root.
    """
    if not signals:
        return []
    start = min(signal.timestamp for signal in signals)
    return [branch + _describe(run, start, show_payload_width) for branch, run in _walk(signals, collapse_text)]


def _check_roots(signals: Sequence[Signal]) -> list[str]:
    roots = [signal for signal in signals if signal.parent is None]
    if not roots:
        return ["no signal is a root; a run begins with workflow:start"]
    problems = [f"{roots[0].name} ({roots[0].id}) is the root, not {ROOT_NAME}"] if roots[0].name != ROOT_NAME else []
    return problems + [f"{root.name} ({root.id}) has no parent; {roots[0].id} is the root" for root in roots[1:]]


# -- drawing


def _walk(signals: Sequence[Signal], collapse_text: bool) -> Iterator[tuple[str, list[Signal]]]:
    """Each line of the tree from top to bottom: its branch, and the signals it stands for.

    A list of what is left to draw, last first: a chain of ten thousand signals is no depth for a recursion.
    """
    below = children(signals)
    ids = {signal.id for signal in signals}
    roots = [signal for signal in signals if signal.parent not in ids]
    todo = [("", "", run) for run in reversed(_runs(roots, below, collapse_text))]
    while todo:
        branch, indent, run = todo.pop()
        yield branch, run
        runs = _runs(below.get(run[-1].id, []), below, collapse_text)
        for number, each in enumerate(reversed(runs)):
            elbow, rail = ("└─ ", "   ") if number == 0 else ("├─ ", "│  ")
            todo.append((indent + elbow, indent + rail, each))


def _runs(siblings: Sequence[Signal], below: dict[str, list[Signal]], collapse_text: bool) -> list[list[Signal]]:
    """Siblings by line: deltas that follow each other, and that nothing hangs from, share one."""
    runs: list[list[Signal]] = []
    for signal in siblings:
        last = runs[-1][-1] if runs else None
        if (
            collapse_text
            and last is not None
            and signal.name in DELTA_NAMES
            and (last.name, last.agent) == (signal.name, signal.agent)
            and last.id not in below
            and signal.id not in below
        ):
            runs[-1].append(signal)
        else:
            runs.append([signal])
    return runs


def _describe(run: Sequence[Signal], start: datetime, width: int) -> str:
    first, last = run[0], run[-1]
    count = f" ×{len(run)}" if len(run) > 1 else ""
    parts = [first.name + count, first.agent or "", _show_payload(run, width), f"+{_milliseconds(start, first)}"]
    if len(run) > 1:
        parts[-1] += f"…{_milliseconds(start, last)}"
    return "  ".join(part for part in parts if part) + " ms"


def _show_payload(run: Sequence[Signal], width: int) -> str:
    if width <= 0:
        return ""
    if len(run) == 1:
        return safe_repr(msgspec.json.encode(run[0].payload).decode(), width)
    return safe_repr(msgspec.json.encode("".join(_content(signal) for signal in run)).decode(), width)


def _content(delta: Signal) -> str:
    content = delta.payload.get("content") if isinstance(delta.payload, dict) else None
    return content if isinstance(content, str) else ""


def _milliseconds(start: datetime, signal: Signal) -> int:
    return int((signal.timestamp - start).total_seconds() * 1000)

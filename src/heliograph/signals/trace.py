"""Analyse the log of a run: causes and consequences of a signal, failures, and the log drawn as a tree.

All functions are pure and take signals in the order of the log.
"""

# Requirements: SIG-60..SIG-63.
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from heliograph.codes import UNKNOWN
from heliograph.error_text import printable, safe_repr
from heliograph.errors import NotFound
from heliograph.key_patterns import json_without_secrets
from heliograph.signals.model import Signal

DELTA_NAMES = frozenset({"text:delta", "thinking:delta"})


def chain(signals: Sequence[Signal], identifier: str) -> list[Signal]:
    """Return the causes of a signal: the signal itself, its parent, and so on up to the root.

    In an excerpt of a log, the chain ends at the first signal whose parent is not in the excerpt.
    Raises NotFound (unknown_signal) if `signals` does not contain `identifier`.
    """
    by_id = {signal.id: signal for signal in signals}
    if identifier not in by_id:
        raise NotFound(
            f"none of these {len(signals)} signals has the id '{safe_repr(identifier)}'; `helio signal tail` lists ids",
            code="unknown_signal",
        )
    ancestors: dict[str, Signal] = {}  # by id: a cycle ends the loop
    signal: Signal | None = by_id[identifier]
    while signal is not None and signal.id not in ancestors:
        ancestors[signal.id] = signal
        signal = by_id.get(signal.parent) if signal.parent is not None else None
    return list(ancestors.values())


def children(signals: Iterable[Signal]) -> dict[str, list[Signal]]:
    """Return, for each parent's id, the signals that it caused, in the order of the log. Roots are in no list."""
    found: dict[str, list[Signal]] = {}
    for signal in signals:
        if signal.parent is not None:
            found.setdefault(signal.parent, []).append(signal)
    return found


@dataclass(frozen=True, slots=True)
class TurnFailure:
    """A turn that failed or timed out, with its full error. outcome: `failed` or `timeout`."""

    agent: str
    turn_id: str
    outcome: str
    code: str
    message: str


def failure_of(signal: Signal) -> TurnFailure | None:
    """Return the failure that an `agent:failed` signal records; None for other signals and for stopped turns."""
    payload: Any = signal.payload
    if signal.name != "agent:failed" or not isinstance(payload, dict) or payload.get("outcome") == "canceled":
        return None
    error: Any = payload.get("error")
    error = error if isinstance(error, dict) else {}
    return TurnFailure(str(payload.get("agent")), signal.turn_id or "", str(payload.get("outcome")),
                       str(error.get("code") or UNKNOWN), str(error.get("message") or ""))  # fmt: skip


def draw_tree(signals: Sequence[Signal], *, show_payload_width: int = 60, collapse_text: bool = True) -> list[str]:
    """Draw signals as a tree of causes, one line each: branch, name, agent, payload, milliseconds since the first signal.

    show_payload_width: characters of payload per line; 0 omits payloads.
    collapse_text: consecutive deltas of the same name and agent share one line, with their count and joined text.
    A signal whose parent is not in `signals` is drawn as a root.
    """
    if not signals:
        return []
    start = min(signal.timestamp for signal in signals)
    return [branch + _describe(group, start, show_payload_width) for branch, group in _walk(signals, collapse_text)]


def _walk(signals: Sequence[Signal], collapse_text: bool) -> Iterator[tuple[str, list[Signal]]]:
    """Yield each line of the tree from top to bottom: its branch and the signals that it represents.

    It uses a stack instead of recursion, because a chain may have ten thousand signals.
    """
    below = children(signals)
    ids = {signal.id for signal in signals}
    roots = [signal for signal in signals if signal.parent not in ids]
    stack = [("", "", group) for group in reversed(_groups(roots, below, collapse_text))]
    while stack:
        branch, indent, group = stack.pop()
        yield branch, group
        groups = _groups(below.get(group[-1].id, []), below, collapse_text)
        for number, each in enumerate(reversed(groups)):
            elbow, rail = ("└─ ", "   ") if number == 0 else ("├─ ", "│  ")
            stack.append((indent + elbow, indent + rail, each))


def _groups(siblings: Sequence[Signal], below: dict[str, list[Signal]], collapse_text: bool) -> list[list[Signal]]:
    """Group siblings by line: consecutive deltas without children share one."""
    groups: list[list[Signal]] = []
    for signal in siblings:
        last = groups[-1][-1] if groups else None
        if (
            collapse_text
            and last is not None
            and signal.name in DELTA_NAMES
            and (last.name, last.agent) == (signal.name, signal.agent)
            and last.id not in below
            and signal.id not in below
        ):
            groups[-1].append(signal)
        else:
            groups.append([signal])
    return groups


def _describe(group: Sequence[Signal], start: datetime, width: int) -> str:
    first, last = group[0], group[-1]
    count = f" ×{len(group)}" if len(group) > 1 else ""
    parts = [
        printable(first.name) + count,
        printable(first.agent or ""),
        _format_payload(group, width),
        f"+{_milliseconds(start, first)}",
    ]
    if len(group) > 1:
        parts[-1] += f"…{_milliseconds(start, last)}"
    return "  ".join(part for part in parts if part) + " ms"


def _format_payload(group: Sequence[Signal], width: int) -> str:
    if width <= 0:
        return ""
    payload = group[0].payload if len(group) == 1 else "".join(map(_content, group))
    return safe_repr(json_without_secrets(payload).decode(), width)


def _content(delta: Signal) -> str:
    content = delta.payload.get("content") if isinstance(delta.payload, dict) else None
    return content if isinstance(content, str) else ""


def _milliseconds(start: datetime, signal: Signal) -> int:
    return int((signal.timestamp - start).total_seconds() * 1000)

"""Assertions about the signals of a run. Each message shows the nearest miss: the signal that came closest, and what differed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from itertools import takewhile
from typing import NoReturn, Protocol, TypeAlias

from heliograph.client.client import Client
from heliograph.error_text import counted, safe_repr
from heliograph.errors import InvalidInput, NotFound
from heliograph.run_result import RunResult
from heliograph.signals.model import Signal
from heliograph.signals.trace import chain, failure_of
from heliograph.testing.signal_match import Expected, SignalMatch, expected, value_text

Run: TypeAlias = RunResult | Sequence[Signal]


class HasClient(Protocol):
    """A served application, or anything else with a client."""

    client: Client


_NAMES_MAX = 12
_LINES_MAX = 8
_FAILURE_WIDTH = 300
_BEGINNING_SECONDS = 0.01  # between two looks whether a run has begun


def contains(run: Run, match: Expected) -> Signal:
    """Assert that a run has a matching signal, and return the first one. match: a pattern, or the result of `signal`."""
    __tracebackhide__ = True
    signals, wanted = _signals(run), expected(match)
    found = next((each for each in signals if wanted.matches(each)), None)
    if found is None:
        _fail([f"no signal matches {wanted}", *_nearest(signals, wanted), _summary(signals)])
    return found


def in_order(run: Run, *matches: Expected) -> list[Signal]:
    """Assert that matching signals follow one another, with any others between them, and return them."""
    __tracebackhide__ = True
    signals, found, start = _signals(run), list[Signal](), 0
    for number, match in enumerate(matches, 1):
        wanted = expected(match)
        place = next((n for n in range(start, len(signals)) if wanted.matches(signals[n])), None)
        if place is None:
            after = f" after {_title(found[-1])}" if found else ""
            lines = [f"signal {number} of {len(matches)} is missing: no signal{after} matches {wanted}"]
            early = [each for each in signals[:start] if wanted.matches(each)]
            if early:
                lines.append(f"  it came too early: {_title(early[-1])}")
            else:
                lines += _nearest(signals[start:], wanted)
            lines += [f"  found before: {_title(each)}" for each in found[-_LINES_MAX:]]
            _fail([*lines, _summary(signals)])
        found.append(signals[place])
        start = place + 1
    return found


def never(run: Run, match: Expected) -> None:
    """Assert that a run has no matching signal. The message shows how the first one came about."""
    __tracebackhide__ = True
    signals, wanted = _signals(run), expected(match)
    found = [each for each in signals if wanted.matches(each)]
    if found:
        lines = [f"{counted(len(found), 'signal')} of {len(signals)} should not be there: no signal may match {wanted}"]
        lines += [f"  {_described(each)}" for each in found[:_LINES_MAX]]
        _fail([*lines, "  the first one was caused by", *_chain_lines(signals, found[0])])


def caused_by(run: Run, effect: Expected, cause: Expected) -> list[Signal]:
    """Assert that each signal that matches `effect`, and there is one, follows from one that matches `cause`.

    Returns the chain of the first one: from the effect, by parents, to its nearest such cause.
    """
    __tracebackhide__ = True
    signals, caused, causing = _signals(run), expected(effect), expected(cause)
    effects = [each for each in signals if caused.matches(each)]
    if not effects:
        _fail([f"no signal matches the effect {caused}", *_nearest(signals, caused), _summary(signals)])
    causes = _Causes(signals, causing)
    for each in effects:
        if causes.nearest(each) is None:
            which = "" if len(effects) == 1 else f", one of {len(effects)} signals that match {caused},"
            lines = [
                f"{_title(each)}{which} was not caused by {causing}; it was caused by",
                *_chain_lines(signals, each),
            ]
            _fail([*lines, *_nearest(chain(signals, each.id)[1:], causing)])
    nearest, ancestors = causes.nearest(effects[0]), chain(signals, effects[0].id)
    return [*takewhile(lambda each: each is not nearest, ancestors), *([] if nearest is None else [nearest])]


class _Causes:
    """The nearest matching cause of each signal. Every signal is looked at once, however many effects a run has."""

    def __init__(self, signals: Sequence[Signal], wanted: SignalMatch):
        self._wanted = wanted
        self._by_id = {each.id: each for each in signals}
        self._nearest: dict[str, Signal | None] = {}

    def nearest(self, signal: Signal) -> Signal | None:
        passed, found, at = [], None, signal
        while at.id not in self._nearest:
            self._nearest[at.id] = None  # until it is known; it also ends a cycle
            passed.append(at.id)
            parent = None if at.parent is None else self._by_id.get(at.parent)
            if parent is None:
                break
            if self._wanted.matches(parent):
                found = parent
                break
            at = parent
        else:
            found = self._nearest[at.id]
        self._nearest |= dict.fromkeys(passed, found)
        return found


async def eventually(served: HasClient, run_id: str, match: Expected, *, within_seconds: float = 10.0) -> Signal:
    """Wait until a run has a matching signal, and return it. Fails at the end of the run, and after `within_seconds`.

    The run may begin meanwhile. In a simulation these are virtual seconds.
    """
    __tracebackhide__ = True
    wanted, seen = expected(match), list[Signal]()
    found: Signal | None = None
    why = f"run {run_id} ended without a signal that matches {wanted}"
    try:
        async with asyncio.timeout(within_seconds), aclosing(_signals_of(served, run_id)) as signals:
            async for each in signals:
                seen.append(each)
                if wanted.matches(each):
                    found = each
                    break
    except TimeoutError:
        why = f"run {run_id} {'had' if seen else 'did not begin and had'} no signal that matches {wanted} within {within_seconds:g} s"
    if found is None:
        _fail([why, *_nearest(seen, wanted), _summary(seen)])
    return found


async def _signals_of(served: HasClient, run_id: str) -> AsyncGenerator[Signal, None]:
    """The signals of a run as they are recorded, from its beginning on, which nothing announces."""
    has_begun = False
    while not has_begun:
        try:
            async with aclosing(served.client.follow(run_id)) as signals:
                async for each in signals:
                    yield each
            has_begun = True
        except NotFound:
            await asyncio.sleep(_BEGINNING_SECONDS)


def _signals(run: Run) -> Sequence[Signal]:
    __tracebackhide__ = True
    signals = run.signals if isinstance(run, RunResult) else run
    if not isinstance(signals, Sequence) or not all(isinstance(each, Signal) for each in signals):
        raise InvalidInput(f"a run must be a result or a list of signals, such as `await app.signals(run_id)`, not {safe_repr(run)}",
                           code="wrong_type")  # fmt: skip
    return signals


def _fail(lines: Sequence[str]) -> NoReturn:
    __tracebackhide__ = True
    raise AssertionError("\n".join(lines))


def _nearest(signals: Sequence[Signal], wanted: SignalMatch) -> list[str]:
    """The signal whose name is the most similar one, and of several the first with the fewest differences."""
    if not signals:
        return []
    likeness = {name: wanted.likeness(name) for name in {each.name for each in signals}}
    best = max(likeness.values())
    nearest = min((each for each in signals if likeness[each.name] == best), key=wanted.count)
    lines = [f"  nearest miss: {_title(nearest)}", *(f"    {each}" for each in wanted.differences(nearest))]
    error = nearest.payload.get("error") if isinstance(nearest.payload, Mapping) else None
    return lines if error is None else [*lines, f"    its error is {value_text(error)}"]


def _chain_lines(signals: Sequence[Signal], signal: Signal) -> list[str]:
    causes = chain(signals, signal.id)[1:]
    lines = [f"    {_described(each)}" for each in causes[:_LINES_MAX]]
    if len(causes) > _LINES_MAX:
        lines.append(f"    ... and {len(causes) - _LINES_MAX} more, up to {_title(causes[-1])}")
    return lines or ["    nothing: it is the root"]


def _title(signal: Signal) -> str:
    by = f" by {signal.agent}" if signal.agent is not None else ""
    return f"#{signal.seq} {signal.name}{by}"


def _described(signal: Signal) -> str:
    return f"{_title(signal)} {value_text(signal.payload)}"


def _summary(signals: Sequence[Signal]) -> str:
    if not signals:
        return "  the run has no signals"
    counts = Counter(each.name for each in signals)
    names = [name if count == 1 else f"{name} ×{count}" for name, count in counts.items()]
    rest = f", and {counted(len(names) - _NAMES_MAX, 'other name')}" if len(names) > _NAMES_MAX else ""
    lines = [f"  the run has {counted(len(signals), 'signal')}: {', '.join(names[:_NAMES_MAX])}{rest}"]
    failed = next(((each, failure) for each in signals if (failure := failure_of(each)) is not None), None)
    if failed is not None:
        lines.append(f"  the first failure is {_title(failed[0])}: {safe_repr(failed[1].message, _FAILURE_WIDTH)}")
    return "\n".join(lines)

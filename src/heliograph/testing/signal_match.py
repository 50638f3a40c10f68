"""Describe a signal that a test expects, and compare it with recorded signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import msgspec

from heliograph.error_text import format_exception, safe_repr
from heliograph.errors import InvalidInput
from heliograph.json_pointer import pointer
from heliograph.signals.model import Signal
from heliograph.signals.pattern import Pattern, compile_pattern

_VALUE_WIDTH = 120
_BEFORE_DIFFERENCE = 20
_DIFFERENCES_MAX = 8


@dataclass(frozen=True, slots=True)
class SignalMatch:
    """A signal that a test expects; made by `signal`."""

    pattern: Pattern
    agent: str | None = None
    payload: Any = None
    where: Callable[[Signal], bool] | None = None

    def matches(self, signal: Signal) -> bool:
        return next(self._differences(signal), None) is None

    def differences(self, signal: Signal) -> list[str]:
        """Describe the parts in which the signal differs from the expected one, the name first; nothing for a match."""
        lines = [str(each) for each in islice(self._differences(signal), _DIFFERENCES_MAX + 1)]
        if len(lines) <= _DIFFERENCES_MAX:
            return lines
        return [*lines[:-1], f"... and {self.count(signal) - _DIFFERENCES_MAX} more differences"]

    def count(self, signal: Signal) -> int:
        """The number of parts in which the signal differs."""
        return sum(1 for _ in self._differences(signal))

    def likeness(self, name: str) -> float:
        """How similar a name is to the expected one, from 0 to 1."""
        if self.pattern.matches(name):
            return 1.0
        return round(SequenceMatcher(None, self.pattern.text, name, autojunk=False).ratio(), 2)

    def _differences(self, signal: Signal) -> Iterator[_Difference]:
        if not self.pattern.matches(signal.name):
            yield _Difference("name", f"expected {self.pattern.text}, was {signal.name}")
        if self.agent is not None and signal.agent != self.agent:
            yield _Difference("agent", f"expected {self.agent}, was {signal.agent}")
        if self.payload is not None:
            yield from _differences(self.payload, signal.payload, "")
        if self.where is not None and not _is_accepted(self.where, signal):
            yield _Difference("where", partial(_rejection, self.where, signal))

    def __str__(self) -> str:
        parts = [self.pattern.text]
        if self.agent is not None:
            parts.append(f"by {self.agent}")
        if self.payload is not None:
            parts.append(f"with payload {value_text(self.payload)}")
        if self.where is not None:
            parts.append(f"where {_name_of(self.where)}")
        return " ".join(parts)


Expected: TypeAlias = str | SignalMatch  # a text is a pattern


def signal(
    pattern: str, *, agent: str | None = None, payload: Any = None, where: Callable[[Signal], bool] | None = None
) -> SignalMatch:
    """Describe a signal by its name, and where needed by its agent, its payload and a predicate.

    pattern: a name or a pattern, such as "agent:*". payload: the expected part of it: a mapping matches if each of its keys does, a
    list if each element does; a function of the value, which returns True for a match, may stand anywhere. where: a function of the
    whole signal. Raises InvalidInput for an invalid pattern.
    """
    return SignalMatch(compile_pattern(pattern), agent, payload, where)


def expected(given: Expected) -> SignalMatch:
    """The match that a caller has given, or the one of its pattern. Raises InvalidInput."""
    if isinstance(given, SignalMatch):
        return given
    if not isinstance(given, str):
        raise InvalidInput(
            f"an expected signal must be a pattern or the result of signal(...), not {safe_repr(given)}",
            code="wrong_type",
        )
    return signal(given)


def value_text(value: Any) -> str:
    """A value for a message, on one line; functions by their names."""
    return safe_repr(msgspec.json.encode(value, enc_hook=_name_of).decode(), _VALUE_WIDTH)


class _Difference(NamedTuple):
    """One part that differs. text: made when it is shown, because a long log has many signals that differ."""

    where: str
    text: str | Callable[[], str]

    def __str__(self) -> str:
        return f"{self.where}: {self.text if isinstance(self.text, str) else self.text()}"


def _differences(wanted: Any, given: Any, at: str) -> Iterator[_Difference]:
    where = f"payload {at}" if at else "payload"
    if callable(wanted):
        if not _is_accepted(wanted, given):
            yield _Difference(where, partial(_rejection, wanted, given))
    elif isinstance(wanted, Mapping) and isinstance(given, Mapping):
        for key, value in wanted.items():
            inside = pointer(at, str(key))
            if key not in given:
                yield _Difference(f"payload {inside}", partial(_missing, value))
            else:
                yield from _differences(value, given[key], inside)
    elif _is_list(wanted) and _is_list(given) and len(wanted) == len(given):
        for n, (one, other) in enumerate(zip(wanted, given, strict=True)):
            yield from _differences(one, other, pointer(at, n))
    elif wanted != given or isinstance(wanted, bool) != isinstance(given, bool):
        yield _Difference(where, partial(_comparison, wanted, given))


def _missing(wanted: Any) -> str:
    return f"missing, expected {value_text(wanted)}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _comparison(wanted: Any, given: Any) -> str:
    """Both values; of long ones, that in which they differ."""
    if isinstance(wanted, Mapping):
        return f"expected an object, was {value_text(given)}"
    if _is_list(wanted) and _is_list(given):
        return f"expected {len(wanted)} elements, was {len(given)}: {value_text(wanted)} and {value_text(given)}"
    if isinstance(wanted, str) and isinstance(given, str) and max(len(wanted), len(given)) > _VALUE_WIDTH:
        place = next(
            (n for n, (one, other) in enumerate(zip(wanted, given, strict=False)) if one != other),
            min(len(wanted), len(given)),
        )
        if place >= _VALUE_WIDTH // 2:
            start = place - _BEFORE_DIFFERENCE
            return f"differs at character {place + 1}: expected {value_text('…' + wanted[start:])}, was {value_text('…' + given[start:])}"
    return f"expected {value_text(wanted)}, was {value_text(given)}"


def _is_accepted(predicate: Callable[[Any], object], value: Any) -> bool:
    try:
        return bool(predicate(value))
    except Exception:  # `_rejection` shows it
        return False


def _rejection(predicate: Callable[[Any], object], value: Any) -> str:
    """Why a predicate does not accept a value."""
    what = f"the signal with payload {value_text(value.payload)}" if isinstance(value, Signal) else value_text(value)
    try:
        predicate(value)
    except Exception as error:
        return f"{_name_of(predicate)} raised {format_exception(error, _VALUE_WIDTH)} for {what}"
    return f"{_name_of(predicate)} does not accept {what}"


def _name_of(value: Any) -> str:
    name = getattr(value, "__name__", None) or type(value).__name__
    return "the lambda" if name == "<lambda>" else str(name)

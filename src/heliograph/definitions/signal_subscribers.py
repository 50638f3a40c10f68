"""The definition of a subscriber: a durable name, the patterns of its signals, and the adapter that receives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from heliograph.definitions.signal_definition import SignalDefinition, definitions_by_name, name_of
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.signals.model import Signal
from heliograph.signals.pattern import compile_pattern

NAME_MAX = 200
PATTERNS_MAX = 100
ATTEMPTS_MAX = 1000
SINCE = ("now", "start")

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:")
_POSITION_MAX = 9_000_000_000_000_000


class SignalSubscriber(msgspec.Struct, frozen=True):
    """A subscriber of an application.

    definitions: of its signals, by name. adapter: a heliograph.adapters.base.SignalAdapter. max_attempts: for a signal that it rejects.
    """

    name: str
    patterns: tuple[str, ...]
    definitions: Mapping[str, SignalDefinition[Any]]
    adapter: Any
    since: str
    max_attempts: int


def signal_subscriber(
    name: str, patterns: Sequence[Any], adapter: Any, since: str, max_attempts: int
) -> SignalSubscriber:
    """Check a subscriber of an application. Raises InvalidInput."""
    texts, definitions = check_subscription(name, patterns, since)
    check_number(name, "max_attempts", max_attempts, ATTEMPTS_MAX)
    return SignalSubscriber(name, texts, definitions, adapter, since, max_attempts)


def check_number(name: str, key: str, value: object, most: int, *, fractions: bool = False) -> None:
    """Check a number of a subscriber. Raises InvalidInput (`out_of_range`)."""
    is_number = isinstance(value, int) or (fractions and isinstance(value, float))
    if isinstance(value, bool) or not is_number or not 0 < value <= most:  # type: ignore[operator]
        bounds = f"a number over 0, up to {most}" if fractions else f"a whole number from 1 to {most}"
        raise InvalidInput(f"subscriber {name}: {key} must be {bounds}, not {safe_repr(repr_of(value))}", code="out_of_range",
                           path=f"/subscribers/{name}/{key}")  # fmt: skip


def check_subscription(
    name: object, patterns: object, since: object
) -> tuple[tuple[str, ...], Mapping[str, SignalDefinition[Any]]]:
    """Check what a subscription consists of; return its patterns, and the definitions among them by name.

    Raises InvalidInput (`invalid_identifier`, `wrong_type`, `required_field`, `too_many`, `invalid_enum`, and the errors of patterns), SetupError.
    """
    check_subscription_name(name)
    if isinstance(patterns, str | SignalDefinition) or not isinstance(patterns, list | tuple):
        raise InvalidInput(f"subscription {name}: the patterns must be a list, not {safe_repr(repr_of(patterns))}", code="wrong_type",
                           path="/patterns")  # fmt: skip
    if not patterns:
        raise InvalidInput(f"subscription {name} has no pattern; name a signal, or a pattern such as 'order:*'", code="required_field",
                           path="/patterns")  # fmt: skip
    if len(patterns) > PATTERNS_MAX:
        raise InvalidInput(f"subscription {name} has {len(patterns)} patterns, the limit is {PATTERNS_MAX}; use wildcards", code="too_many",
                           path="/patterns")  # fmt: skip
    if since not in SINCE:
        raise InvalidInput(
            f"since must be one of {', '.join(SINCE)}, not {safe_repr(repr_of(since))}",
            code="invalid_enum",
            path="/since",
        )
    texts = tuple(dict.fromkeys(compile_pattern(name_of(each)).text for each in patterns))
    return texts, definitions_by_name(each for each in patterns if isinstance(each, SignalDefinition))


def check_subscription_name(name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX or not _NAME_CHARACTERS.issuperset(name):
        raise InvalidInput(f"the name of a subscription must be 1 to {NAME_MAX} ASCII letters, digits, '_', '-', '.' or ':', not "
                           f"{safe_repr(repr_of(name))}", code="invalid_identifier", path="/name")  # fmt: skip


def check_positions(after: Mapping[str, int] | None) -> Mapping[str, int]:
    """Check positions in the logs of runs. Raises InvalidInput (`wrong_type`, `out_of_range`)."""
    if after is None:
        return {}
    if not isinstance(after, Mapping) or not all(isinstance(run_id, str) for run_id in after):
        raise InvalidInput(f"after must be an object of run ids and positions, not {safe_repr(repr_of(after))}", code="wrong_type",
                           path="/after")  # fmt: skip
    for run_id, seq in after.items():
        if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq <= _POSITION_MAX:
            raise InvalidInput(f"after: the position in run {safe_repr(run_id)} must be a position: the seq of a signal, not "
                               f"{safe_repr(repr_of(seq))}", code="out_of_range", path="/after")  # fmt: skip
    return after


def loaded(signal: Signal, definitions: Mapping[str, SignalDefinition[Any]]) -> Signal[Any]:
    """The signal with its payload as the model of its definition, if there is one. Raises InvalidInput."""
    definition = definitions.get(signal.name)
    return signal if definition is None else msgspec.structs.replace(signal, payload=definition.load(signal.payload))

"""Warnings about subscriptions that can never match, and about signals without a subscriber, with the likely typing error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from heliograph.signals.pattern import Pattern, compile_pattern

NAMES_LISTED_MAX = 20


def warn_unmatchable(
    patterns: Iterable[Pattern | str], emitted_names: Iterable[str], runtime_names: Iterable[str] = ()
) -> list[str]:
    """Return a warning for each pattern that matches none of the names, in the order of the patterns.

    A warning suggests the most similar name and lists the emitted names, but not those of the runtime.
    """
    emitted = sorted(set(emitted_names))
    names = sorted({*emitted, *runtime_names})
    listed = ", ".join(emitted[:NAMES_LISTED_MAX]) or "none"
    if len(emitted) > NAMES_LISTED_MAX:
        listed += f" and {len(emitted) - NAMES_LISTED_MAX} more"
    warnings = []
    for item in patterns:
        pattern = compile_pattern(item) if isinstance(item, str) else item
        if not any(pattern.matches(name) for name in names):
            warnings.append(
                f"pattern_matches_nothing: '{pattern.text}' matches no signal{_suggestion(pattern.text, names)} (emitted: {listed})"
            )
    return warnings


def warn_unsubscribed(
    emitted: Iterable[tuple[str, str]], patterns: Iterable[Pattern | str], outside: Iterable[str] = ()
) -> list[str]:
    """Return a warning for each pair (agent, emitted name) that no pattern matches, in the order of the pairs.

    outside: the patterns of subscribers that are no agents; a warning never suggests them.
    """
    compiled = [compile_pattern(item) if isinstance(item, str) else item for item in patterns]
    beyond = [compile_pattern(text) for text in outside]
    return [
        f"nothing_subscribes: agent {agent} emits '{name}', and no agent subscribes to it"
        + _suggestion(name, [pattern.text for pattern in compiled])
        for agent, name in emitted
        if not any(pattern.matches(name) for pattern in (*compiled, *beyond))
    ]


def _suggestion(text: str, candidates: Sequence[str]) -> str:
    similar = get_close_matches(text, candidates, 1)
    return f"; did you mean {similar[0]}?" if similar else ""

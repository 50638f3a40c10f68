"""A claim about what chaos left behind, and what speaks against it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """problems: none when the claim holds. note: what else is to be known of it."""

    claim: str
    problems: Sequence[str]
    note: str = ""


def told(what: str, subjects: Iterable[str]) -> list[str]:
    """One problem that many have, or none that nobody has."""
    subjects = sorted(subjects)
    return [f"{what}: {len(subjects)} times, such as {', '.join(subjects[:SHOWN_MAX])}"] if subjects else []


def told_each(problems: Iterable[str]) -> list[str]:
    problems = list(problems)
    return problems[:SHOWN_MAX] + ([f"and {len(problems) - SHOWN_MAX} more"] if len(problems) > SHOWN_MAX else [])

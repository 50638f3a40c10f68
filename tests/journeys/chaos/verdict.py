"""A claim about the records after chaos, with the problems that contradict it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LISTED_MAX = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """A checked claim. problems: empty if the claim holds. note: further figures for the report."""

    claim: str
    problems: Sequence[str]
    note: str = ""


def listed(what: str, subjects: Iterable[str]) -> list[str]:
    """Return one line for all subjects of a problem, or none without subjects."""
    subjects = sorted(subjects)
    return [f"{what}: {len(subjects)} times, for example {', '.join(subjects[:LISTED_MAX])}"] if subjects else []


def capped(problems: Iterable[str]) -> list[str]:
    problems = list(problems)
    return problems[:LISTED_MAX] + ([f"and {len(problems) - LISTED_MAX} more"] if len(problems) > LISTED_MAX else [])

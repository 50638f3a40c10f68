"""A check, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from heliograph.testing.blackbox.evidence import Evidence

Outcome = Literal["passed", "failed", "not observable"]


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one requirement in one scenario. holds: whether the evidence satisfies it. reads: the command that it needs."""

    id: str
    scenario: str
    text: str
    holds: Callable[[Evidence], bool]
    reads: Literal["signals", "envelopes"] = "signals"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check."""

    check: Check
    outcome: Outcome


def judged(check: Check, evidence: Evidence) -> Result:
    """Judge the evidence. A log that a check cannot read fails it: a foreign system may print anything."""
    if check.reads == "envelopes" and evidence.envelopes is None:
        return Result(check, "not observable")
    try:
        holds = check.holds(evidence)
    except (LookupError, TypeError, ValueError, AttributeError):
        holds = False
    return Result(check, "passed" if holds else "failed")

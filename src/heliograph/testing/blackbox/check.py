"""A check, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from heliograph.testing.blackbox.evidence import Evidence

Outcome = Literal["passed", "failed", "not observable"]


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one requirement in one scenario. holds: whether the evidence satisfies it. needs: the command that it needs."""

    id: str
    scenario: str
    text: str
    holds: Callable[[Evidence], bool]
    needs: Literal["signals", "envelopes", "pool_worker"] = "signals"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check."""

    check: Check
    outcome: Outcome


def is_satisfied(check: Check, evidence: Evidence) -> bool:
    """Whether the evidence satisfies a check. A log that a check cannot read does not: a foreign system may print anything."""
    try:
        return check.holds(evidence)
    except (LookupError, TypeError, ValueError, AttributeError):
        return False

"""A critic's finding: one remark about one line, with an excerpt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
EXCERPT_CHARACTERS = 160
FINDINGS_MAX = 60
"""A critic's report travels as a message; sixty remarks of a line each stay well under 64 KiB."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`line` counts from 1; `excerpt` is one line, cut at 160 characters, and may be empty."""

    critic: str
    severity: Severity
    line: int
    message: str
    excerpt: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Finding:
        return cls(**data)


def excerpt(text: str, limit: int = EXCERPT_CHARACTERS) -> str:
    """Put `text` on one line, cut after `limit` characters, at the end of a word if possible."""
    # Eight characters of source for one of excerpt: enough for any indentation, and a bound for a line of 1 MB.
    line = " ".join(text[: limit * 8].split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    head, _, tail = cut.rpartition(" ")
    return (head if head and len(tail) < limit // 4 else cut) + "…"


def settle(findings: Iterable[Finding], limit: int = FINDINGS_MAX) -> list[Finding]:
    """Put findings in order of line, then message; beyond `limit`, keep the most severe and add the number of the others."""
    ordered = sorted(set(findings), key=_by_line)
    if len(ordered) <= limit:
        return ordered
    ranked = sorted(ordered, key=lambda finding: SEVERITIES.index(finding.severity))
    kept, left_out = ranked[: limit - 1], ranked[limit - 1 :]
    last = left_out[0]
    rest = Finding(last.critic, "note", last.line, f"{len(left_out)} more remarks of the kind were left out")
    return sorted([*kept, rest], key=_by_line)


def _by_line(finding: Finding) -> tuple[int, str, str]:
    return finding.line, finding.message, finding.excerpt

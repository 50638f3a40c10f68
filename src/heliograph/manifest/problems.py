"""The problems of manifests: each with its place in a file, a code, a message and the next step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from heliograph.errors import InvalidInput

PROBLEMS_MAX = 50
WARNINGS_MAX = 100  # that a command prints about one manifest


@dataclass(frozen=True, slots=True)
class ManifestProblem:
    """One problem. line, column: from 1. pointer: the JSON pointer of its value. hint: the next step.

    binding: the exact name of what is missing: of a tool, model, variable or agent; empty for other problems.
    Its texts contain no secret and no value of an environment variable.
    """

    file: str
    line: int
    column: int
    code: str
    message: str
    pointer: str = ""
    hint: str = ""
    is_warning: bool = False
    binding: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def __str__(self) -> str:
        return f"{self.place}: {self.code}: {self.message}"

    @property
    def notice(self) -> str:
        """The problem with its next step, in one line."""
        return f"{self}; {self.hint}" if self.hint else str(self)

    def to_json(self) -> dict[str, Any]:
        return {
            "severity": "warning" if self.is_warning else "error", "code": self.code, "message": self.message,
            "file": self.file, "line": self.line, "column": self.column, "path": self.pointer, "hint": self.hint,
        }  # fmt: skip


class ManifestRejected(InvalidInput):
    """A manifest has errors, and nothing of it was loaded. problems: its errors and then its warnings, each in the order of the file."""

    default_code = "invalid_manifest"

    def __init__(self, problems: Iterable[ManifestProblem]):
        errors, warnings = in_order(problems)
        found = (*errors, *warnings)
        self.problems = found[:PROBLEMS_MAX]
        first = errors[0]
        one = len(found) == 1
        super().__init__(str(first) if one else _listed(self.problems, len(found)), code=first.code,
                         path=first.pointer or first.place, hint=first.hint if one else None)  # fmt: skip

    def envelope(self) -> dict[str, dict[str, Any]]:
        first = self.problems[0]
        place = {"file": first.file, "line": first.line, "column": first.column}
        listed = [each.to_json() for each in self.problems]
        return {"error": {**super().envelope()["error"], "hint": first.hint, **place, "problems": listed}}


def in_order(problems: Iterable[ManifestProblem]) -> tuple[list[ManifestProblem], list[ManifestProblem]]:
    """Return the errors and the warnings, each once and in the order of the file."""
    found = sorted(dict.fromkeys(problems), key=lambda each: (each.file, each.line, each.column))
    return [each for each in found if not each.is_warning], [each for each in found if each.is_warning]


@contextmanager
def gathered(found: list[ManifestProblem]) -> Iterator[None]:
    """Add the problems of a manifest that is rejected inside, so that those of the next stage are found as well."""
    try:
        yield
    except ManifestRejected as rejected:
        found += rejected.problems


def accepted(problems: Iterable[ManifestProblem]) -> list[ManifestProblem]:
    """Return the warnings. Raises ManifestRejected if a problem is an error."""
    errors, warnings = in_order(problems)
    if errors:
        raise ManifestRejected([*errors, *warnings])
    return warnings


def _listed(problems: Iterable[ManifestProblem], count: int) -> str:
    listed = list(problems)
    files = list(dict.fromkeys(each.file for each in listed))
    more = f"the first {len(listed)} of at least {count}" if count > len(listed) else str(count)
    lines = [f"{' and '.join(files)}: {more} problems; nothing was loaded"]
    for each in listed:
        lines.append(f"  {'warning: ' if each.is_warning else ''}{each}")
        if each.hint:
            lines.append(f"    hint: {each.hint}")
    return "\n".join(lines)

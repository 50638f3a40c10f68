"""`helio validate FILE...`: check manifests on three levels: parsed, valid, runnable."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from heliograph.cli.agent_manifests import bind, check_schema, not_run, parse_agent, valid_agent
from heliograph.cli.bindings import Bindings, read_bindings
from heliograph.cli.commands import LEVELS
from heliograph.cli.files import read_file
from heliograph.cli.manifests import load_routing, load_runtime
from heliograph.cli.output import json_line, line, reserved_stdout
from heliograph.cli.workflow_manifests import STEP_KINDS, bind_workflow
from heliograph.error_text import counted, safe_repr
from heliograph.errors import InvalidInput, NotFound
from heliograph.manifest.document import Document
from heliograph.manifest.ossa import KINDS, validate_ossa
from heliograph.manifest.problems import WARNINGS_MAX, ManifestProblem, ManifestRejected, accepted, in_order
from heliograph.manifest.reader import kind_of
from heliograph.manifest.runtime_spec import is_fragment

_BINDINGS = {
    "missing_tool": "tool",
    "missing_model": "model",
    "missing_credential": "credential",
    "missing_agent": "agent",
    "env_missing": "variable",
}
_MISUSED = 2


@dataclass
class Report:
    """What is known about one file. reached: how many of the levels it has reached."""

    file: str
    kind: str | None = None
    version: str | None = None
    reached: int = 0
    problems: list[ManifestProblem] = field(default_factory=list)
    phases: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        missing = [
            {"binding": _BINDINGS[each.code], "name": each.binding, "line": each.line, "column": each.column, "path": each.pointer, "message": each.message}
            for each in self.problems if each.code in _BINDINGS and not each.is_warning
        ]  # fmt: skip
        levels = {level: self.reached > n for n, level in enumerate(LEVELS)}
        return {"file": self.file, "kind": self.kind, "apiVersion": self.version, **levels, "missing": missing,
                "problems": [each.to_json() for each in self.problems]}  # fmt: skip


def validate(options: Namespace) -> int:
    """Check the files. Returns 0 if all of them reach the required level, otherwise 2."""
    if not options.json:
        return _validate(options)
    with reserved_stdout() as own:  # the application of --tools may print while it is loaded
        return _validate(options, own)


def _validate(options: Namespace, own: Any = None) -> int:
    bindings = read_bindings(options)
    is_reached = True
    for name in options.files:
        report = check(Path(name), bindings)
        is_reached &= report.reached > LEVELS.index(options.level)
        if own is not None:
            json_line("manifest", report.to_json(), own)
        else:
            _print(report)
    return 0 if is_reached else _MISUSED


def check(path: Path, bindings: Bindings) -> Report:
    """Check one file on all levels, as far as it reaches."""
    report = Report(safe_repr(str(path), 300))
    try:
        data = read_file(path)
    except (InvalidInput, NotFound) as error:
        report.problems.append(
            ManifestProblem(report.file, 1, 1, error.code, error.message, "", error.hint or "check the path")
        )
        return report
    document = parse_agent(data, str(path), bindings)
    if not document.is_readable:
        report.problems += document.problems
        return report
    report.reached, report.kind = 1, kind_of(document)
    version = document.value.get("apiVersion") if isinstance(document.value, dict) else None
    report.version = version if isinstance(version, str) else None
    try:
        if report.kind == "Agent":
            check_schema(document, bindings)
            report.reached = LEVELS.index("valid") + 1
            manifest = valid_agent(document, bindings)
            report.phases = manifest.phases
            application, problems = bind(manifest, bindings)
            for each in in_order([*problems, *manifest.warnings]):
                report.problems += each
            report.reached += application is not None
        elif report.kind in STEP_KINDS:
            if all(each.is_warning for each in (*document.problems, *validate_ossa(document))):
                report.reached = LEVELS.index("valid") + 1
            application, problems = bind_workflow(document, path, bindings)
            for each in in_order(problems):
                report.problems += each
            report.reached += application is not None
        elif report.kind == "MessageRouting":
            _check_applied(report, lambda: load_routing(str(path), allows_secrets=bindings.allows_secrets).warnings)
        elif report.kind == "RuntimeSpec" or is_fragment(document):
            _check_applied(report, lambda: load_runtime(str(path), allows_secrets=bindings.allows_secrets).warnings)
        else:
            _check_other(document, report)
    except ManifestRejected as rejected:
        report.problems += rejected.problems
    return report


def _check_applied(report: Report, read: Callable[[], Iterable[ManifestProblem]]) -> None:
    """Check a manifest that is applied to applications: a valid one is runnable if its variables have values."""
    try:
        report.problems += read()
        report.reached = len(LEVELS)
    except ManifestRejected as rejected:
        report.problems += rejected.problems
        if all(each.is_warning or each.code == "env_missing" for each in rejected.problems):
            report.reached = LEVELS.index("valid") + 1


def _check_other(document: Document, report: Report) -> None:
    """Check a manifest of a kind that Heliograph does not run. Raises ManifestRejected for an invalid one."""
    if report.kind is not None and report.kind not in KINDS:
        known = (*KINDS, "RuntimeSpec", "MessageRouting")
        nearest = get_close_matches(report.kind, known, 1)
        raise ManifestRejected([*document.problems, document.problem(
            "unknown_kind", f"there is no kind {safe_repr(report.kind)} of manifests", "/kind",
            f"did you mean {nearest[0]}?" if nearest else f"write one of {', '.join(known)}",
        )])  # fmt: skip
    report.problems += accepted([*document.problems, *validate_ossa(document)])
    report.reached = LEVELS.index("valid") + 1
    report.problems.append(not_run(document, str(report.kind)))


def _print(report: Report) -> None:
    what = f": {report.kind} of {report.version}" if report.kind and report.version else ""
    line(f"{report.file}{safe_repr(what, 200)}")
    for n, level in enumerate(LEVELS):
        line(f"  {level.ljust(8)}  {'yes' if report.reached > n else 'no'}")
    if report.phases:
        line(f"  phases    {', '.join(report.phases)} (shown only)")
    errors, warnings = in_order(report.problems)
    for each in [*errors, *warnings[:WARNINGS_MAX]]:
        line(f"  {'warning: ' if each.is_warning else ''}{each}")
        if each.hint:
            line(f"    hint: {each.hint}")
    if (more := len(warnings) - WARNINGS_MAX) > 0:
        line(f"  {counted(more, 'more warning')}; --json prints all of them")

"""`helio conformance`: run the black-box suite against a system that a file surface.toml describes."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from heliograph.cli.output import json_line, line, table
from heliograph.errors import InvalidInput
from heliograph.testing.blackbox.check import Check, Result
from heliograph.testing.blackbox.suite import OWN_SURFACE, chosen, run
from heliograph.testing.blackbox.surface import read_surface


def check(options: Namespace) -> int:
    """Run the chosen checks, and print a row for each one. Returns 0 if no check fails, otherwise 1."""
    checks = chosen(options.ids)
    if options.list:
        _list(checks, options.json)
        return 0
    surface = read_surface(Path(options.surface) if options.surface else OWN_SURFACE)
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as temporary:
        results = run(surface, checks, _folder(options.keep, temporary), _show)
    _print(results, options.json)
    counts = Counter(each.outcome for each in results)
    if not options.json:
        line(
            f"{surface.name}: {counts['passed']} passed, {counts['failed']} failed, {counts['not observable']} not observable"
        )
    return 1 if counts["failed"] else 0


def _folder(keep: str | None, temporary: str) -> Path:
    if keep is None:
        return Path(temporary) / "runs"
    if (folder := Path(keep).resolve()).exists():
        raise InvalidInput(f"{keep} exists; --keep takes a new folder", code="invalid_surface", path="--keep")
    return folder


def _show(scenario: str) -> None:
    sys.stderr.write(f"run {scenario} ...\n")


def _list(checks: Sequence[Check], as_json: bool) -> None:
    if as_json:
        for each in checks:
            json_line("check", {"id": each.id, "run": each.scenario, "needs": each.needs, "text": each.text})
    else:
        table(("ID", "RUN", "NEEDS", "CHECK"), [(each.id, each.scenario, each.needs, each.text) for each in checks])


def _print(results: Sequence[Result], as_json: bool) -> None:
    if as_json:
        for each in results:
            json_line(
                "check_result",
                {"id": each.check.id, "outcome": each.outcome, "run": each.check.scenario, "text": each.check.text},
            )
    else:
        table(
            ("ID", "RESULT", "RUN", "CHECK"),
            [(each.check.id, each.outcome, each.check.scenario, each.check.text) for each in results],
        )

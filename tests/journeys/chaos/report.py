"""The report as text: injected faults, observed figures, latencies and claims."""

from __future__ import annotations

from collections.abc import Iterator

from tests.journeys.chaos.faults import TITLES
from tests.journeys.chaos.figures import Spread
from tests.journeys.chaos.run import Report

WIDTH = 44
SEEN = {
    "runs": "runs started and ended",
    "turns": "turns ended",
    "re_owned": "turns with more than one owner",
    "recoveries": "lost leases, in all",
    "most_attempts": "attempts of one turn, at most",
    "stale_refused": "stale writes and leases refused",
    "not_successful": "turns that ended without success",
    "processes_replaced": "processes replaced",
    "clock_off_s_max": "clocks off by up to, seconds",
    "clock_off_s_seen": "  as the log shows, seconds",
}
DETAILS = {"pg_stop": ("pg_fast", "pg_immediate"), "disk_full": ("panic",)}


def lines(report: Report) -> Iterator[str]:
    yield f"chaos  seed {report.options.seed}, {report.options.workers} workers, lease " \
          f"{report.options.lease_seconds:g} s, {report.seconds:.0f} s; data on {report.disk}"  # fmt: skip
    yield from _injected(report)
    yield _head("seen", "")
    yield from (_row(title, f"{report.figures[name]:>7}") for name, title in SEEN.items() if name in report.figures)
    yield _head("seconds", f"{'p50':>7} {'p99':>7} {'max':>7}      n")
    yield from (_row(what, _times(spread)) for what, spread in report.latencies.items())
    yield _head("claims", "")
    for verdict in report.verdicts:
        note = f"  ({verdict.note})" if verdict.note else ""
        yield f"  {'VIOLATED' if verdict.problems else 'ok':<9}{verdict.claim}{note}"
        yield from (f"             {problem}" for problem in verdict.problems)


def _injected(report: Report) -> Iterator[str]:
    yield _head("injected", f"{'times':>7} {'p50 s':>7} {'max s':>7}")
    for kind, title in TITLES.items():
        if kind not in report.injected:
            continue
        spread, detail = report.lasted.get(kind), _detail(report, kind)
        lasted = f" {spread.p50:>7.2f} {spread.most:>7.2f}" if spread else " " * 16
        yield _row(title, f"{report.injected[kind]:>7}{lasted}  {detail}".rstrip())
    yield from (_row(title, f"      - not here: {why}") for title, why in report.unavailable.items())


def _detail(report: Report, kind: str) -> str:
    parts = (
        f"{report.injected[part]} {part.removeprefix('pg_')}"
        for part in DETAILS.get(kind, ())
        if part in report.injected
    )
    return ", ".join(parts)


def _times(spread: Spread) -> str:
    return f"{spread.p50:>7.2f} {spread.p99:>7.2f} {spread.most:>7.2f} {spread.n:>6}"


def _head(title: str, columns: str) -> str:
    return f"{title:<{WIDTH}}{columns}".rstrip()


def _row(title: str, rest: str) -> str:
    return f"  {title:<{WIDTH - 2}}{rest}"

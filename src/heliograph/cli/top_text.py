"""The lines of `helio top`: totals, a table of runs, and the agents of one run. Pure, so that they can be tested without a terminal.

Ages have one unit and no seconds after the first minute, so that most lines of a screen stay the same between two reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from heliograph.cli.top_load import Load, RunNow
from heliograph.error_text import counted, safe_repr

# the largest first; runs with equal values keep their order
SORTS: dict[str, Callable[[RunNow], tuple[float, ...]]] = {
    "age": lambda each: (each.run.created_at.timestamp(),),
    "open": lambda each: (each.run.open_turns,),
    "waits": lambda each: (each.questions, each.open_waits),
    "tokens": lambda each: (each.use.tokens,),
    "cost": lambda each: (each.use.cost_usd or 0.0,),
}
HEADERS = ("RUN", "STATUS", "OPEN", "WAITS", "TOKENS", "COST", "AGE")
_WIDTHS = (10, 5, 5, 7, 8, 4)  # of all columns but the first one
_RUN_WIDTH_MIN = 8
_WIDE = 80  # from this width on, two spaces divide the columns
_TOOL_WIDTH = 30


def selected_runs(load: Load, text: str, sort: str) -> list[RunNow]:
    """The runs whose id, application, status or agents contain a text: those that have not ended first, and then by the order."""
    wanted = text.lower()
    runs = [each for each in load.runs if wanted in _words(each)]
    return sorted(runs, key=lambda each: (each.run.status != "ended", *SORTS[sort](each)), reverse=True)


def total_line(load: Load, runs: Sequence[RunNow]) -> str:
    """The totals of these runs, and the workers with their busy slots."""
    healthy = sum(row.health in ("healthy", "degraded", "unknown") for row in load.workers)
    used, slots = (sum(getattr(row, name) for row in load.workers) for name in ("slots_used", "slots"))
    is_open = [each for each in runs if each.run.status != "ended"]
    parts = [
        f"{len(is_open)}/{counted(len(runs), 'run')} open",
        counted(sum(each.questions for each in runs), "question"),
        f"{counted(healthy, 'worker')} {used}/{slots}",
        f"{number_text(sum(each.use.tokens for each in runs))} tokens",
        cost_text(sum(each.use.cost_usd or 0.0 for each in runs)),
    ]
    return "  ".join(parts)


def header_line(width: int) -> str:
    return _row(HEADERS, width)


def run_line(each: RunNow, at: datetime, width: int) -> str:
    """The line of a run. A plus sign: the log is longer than what is counted yet."""
    run, more = each.run, "" if each.is_counted else "+"
    cost = "-" if each.use.cost_usd is None else cost_text(each.use.cost_usd) + more
    cells = (safe_repr(run.run_id, 200), each.status, str(run.open_turns), str(each.open_waits or "-"),
             number_text(each.use.tokens) + more, cost, age_text((run.ended_at or at) - run.created_at))  # fmt: skip
    return _row(cells, width)


def agent_lines(each: RunNow, at: datetime) -> list[str]:
    """The open turns and waits of a run."""
    lines = [f"{safe_repr(each.run.run_id, 200)} of {safe_repr(each.run.target, 60)}"]
    for turn in each.turns:
        doing = f" in {turn.phase}" if turn.phase else ""
        tool = f", {safe_repr(turn.current_tool, _TOOL_WIDTH)}" if turn.current_tool else ""
        lines.append(f"  {safe_repr(turn.agent, 40)}  {turn.status}{doing}{tool}, {age_text(at - turn.created_at)}")
    kinds = {"human": "a person", "child": "its child", "tool": "a call"}
    for wait in each.waits:
        count = "" if wait.count == 1 else f", {wait.count} times"
        lines.append(
            f"  waits for {kinds[wait.kind]}: {safe_repr(wait.tool, _TOOL_WIDTH)}{count}, {age_text(at - wait.since)}"
        )
    if each.run.open_turns > len(each.turns):
        lines.append(f"  {each.run.open_turns - len(each.turns)} more open")
    return lines


def snapshot_lines(load: Load, sort: str, width: int | None = None) -> list[str]:
    """The totals, and each run with its agents. width: of a terminal; without it, ids are complete."""
    runs = selected_runs(load, "", sort)
    if width is None:
        width = sum(_WIDTHS) + 2 * len(_WIDTHS) + max([_RUN_WIDTH_MIN, *(len(each.run.run_id) for each in runs)])
    lines = [total_line(load, runs), "", header_line(width)]
    for each in runs:
        lines += [run_line(each, load.at, width), *(f"  {text.strip()}" for text in agent_lines(each, load.at)[1:])]
    return lines


def number_text(number: int) -> str:
    """A number in at most five characters: `950`, `12.3k`, `4.5M`."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            value = number / size
            return f"{value:.1f}{unit}" if value < 100 else f"{value:.0f}{unit}"
    return str(number)


def cost_text(usd: float) -> str:
    """Money: `$0.0042`, `$1.25`, `$1250`."""
    return f"${usd:.4f}" if 0 < usd < 0.1 else f"${usd:.2f}" if usd < 1000 else f"${usd:.0f}"


def age_text(span: timedelta) -> str:
    """An age in one unit: `<1m`, `5m`, `3h`, `12d`."""
    minutes = int(span.total_seconds() // 60)
    if minutes < 60:
        return "<1m" if minutes < 1 else f"{minutes}m"
    return f"{minutes // 60}h" if minutes < 48 * 60 else f"{minutes // 1440}d"


def _words(each: RunNow) -> str:
    return " ".join((each.run.run_id, each.run.target, each.status, *(turn.agent for turn in each.turns))).lower()


def _row(cells: Sequence[str], width: int) -> str:
    gap = "  " if width >= _WIDE else " "
    first = max(_RUN_WIDTH_MIN, width - sum(_WIDTHS) - len(gap) * len(_WIDTHS))
    run, status, *numbers = cells
    run = run if len(run) <= first else f"{run[: first // 2 - 1]}…{run[len(run) - (first - first // 2) :]}"
    shown = [
        run.ljust(first),
        status.ljust(_WIDTHS[0]),
        *(cell.rjust(wide) for cell, wide in zip(numbers, _WIDTHS[1:], strict=True)),
    ]
    return gap.join(shown)

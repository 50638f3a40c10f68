"""A system under test that replays recorded runs, with one defect: `broken_system.py COMMAND DEFECT RECORDINGS APPLICATION FOLDER`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Lines = list[dict[str, Any]]


def middle(log: Lines) -> int:
    """The place of the call before which the run is disturbed."""
    return next(
        n
        for n, each in enumerate(log)
        if "middle" in each["payload"].values() or each["payload"].get("target_agent") == "slow-printer"
    )


def run_everywhere(log: Lines) -> Lines:
    """A delegate that any worker runs has begun before its pool has a worker."""
    begun = [each for each in log if each["name"] == "ready" and each["source"]["agent"] == "slow-printer"]
    return [
        *log[:1],
        *(begun or [{**log[0], "name": "ready", "source": {"agent": "slow-printer"}}]),
        *(each for each in log[1:] if each not in begun),
    ]


def without_parents(log: Lines) -> Lines:
    return [{**each, "source": {"agent": (each.get("source") or {}).get("agent")}} for each in log]


def delivered_twice(log: Lines) -> Lines:
    return [copy for each in log for copy in [each] * (2 if each["name"] in ("agent:completed", "agent:failed") else 1)]


def ready_after_plan(log: Lines) -> Lines:
    names = {"ready": "plan_ready", "plan_ready": "ready"}
    return [{**each, "name": names.get(each["name"], each["name"])} for each in log]


def unnamed_tools(envelopes: Lines) -> Lines:
    for each in envelopes:
        each["signal"]["payload"].pop("tool_name", None)
    return envelopes


def trace_of_its_own(envelopes: Lines) -> Lines:
    return [{**each, "trace_id": each["id"]} for each in envelopes]


def unknown_codes(log: Lines) -> Lines:
    return [
        {**each, "payload": {**each["payload"], "error_code": "E1"}} if each["name"] == "error" else each
        for each in log
    ]


def one_attempt(log: Lines) -> Lines:
    """A policy without an effect: only the first turn of each delegate."""
    kept: Lines = []
    seen: set[tuple[str, str | None]] = set()
    for each in log:
        key = each["name"], each["payload"].get("agent") or (each.get("source") or {}).get("agent")
        if each["name"] not in ("ready", "agent:completed", "agent:failed") or key not in seen:
            kept.append(each)
        seen.add(key)
    return kept


def reached_while_open(log: Lines) -> Lines:
    """A breaker that never rejects: the third call of a delegate reaches it, too."""
    ends = [each for each in log if each["name"] == "agent:failed" and each["payload"]["agent"] == "moody"]
    return [*log, *ends[:1]]


DEFECTS: dict[str, tuple[str, Callable[[Lines], Lines]]] = {
    "none": ("signals", list),
    "SIG": ("signals", without_parents),
    "L0": ("signals", delivered_twice),
    "LC": ("signals", ready_after_plan),
    "CTL": ("envelopes", unnamed_tools),
    "ENV": ("envelopes", trace_of_its_own),
    "ERR": ("signals", unknown_codes),
    "RTE": ("signals", run_everywhere),
    "RET": ("signals", one_attempt),
    "CB": ("signals", reached_while_open),
}


def main(command: str, defect: str, recordings: str, application: str, folder: str) -> None:
    if command in ("worker", "pool_worker"):
        with Path(folder, "workers").open("a", encoding="utf-8") as file:
            file.write("started\n")
        recorded = Path(recordings, application.split("-")[1], "effects")
        if recorded.exists():
            Path(folder, "effects").write_text(recorded.read_text(encoding="utf-8"), encoding="utf-8")
        time.sleep(60)
    elif command in ("signals", "envelopes"):
        text = Path(recordings, application.split("-")[1], f"{command}.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        is_disturbed = application.startswith(("conformance-kill", "conformance-routes"))
        if _workers(folder) == 0:
            lines = []  # its worker has not begun
        elif command == "signals" and is_disturbed and _workers(folder) == 1:
            lines = lines[: middle(lines) + 1]
        damaged, damage = DEFECTS[defect]
        for line in damage(lines) if damaged == command else lines:
            print(json.dumps({"envelope": line} if command == "envelopes" else line))


def _workers(folder: str) -> int:
    path = Path(folder, "workers")
    return len(path.read_text(encoding="utf-8").split()) if path.exists() else 0


if __name__ == "__main__":
    main(*sys.argv[1:])

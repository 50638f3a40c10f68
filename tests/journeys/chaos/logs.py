"""Check the logs of the processes and the server: a line that no injected fault explains is a finding.

A crash of PostgreSQL discards its statistics but not its log, so deadlocks and violated constraints are counted here, too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.journeys.chaos.verdict import Verdict

LISTED_MAX = 8
STALE = ("no longer this worker's", "was taken from this worker")
# warnings and errors of a worker that outages explain
EXPECTED = re.compile(
    r"(cannot (claim, retrying|renew|register): |no heartbeat: |turn \S+ is over, but the work of agent \w+ does not end: PostgreSQL is away, "
    r"|\w+ interrupted, retrying: |the doorbell cannot reach |lost (\d+ rings?|events for observers): "
    r"|no connection to PostgreSQL as |the schema check failed: |.* is abandoned by this worker: \S+ failed: "
    r"|sweep of \w+ failed on \S+: .*No space left on device)"
)
# asyncpg logs failed connections in its own format, with tracebacks, chained ones too
DRIVER_MESSAGES = ("Failed to restore the pool connection floor; retrying", "Future exception was never retrieved")
_TRACEBACK = re.compile(
    r"\s|Traceback |During handling |The above exception |DETAIL: |(asyncpg\.exceptions\.|Connection|Timeout|OS)\w*(:|$)"
    r"|future: <Future finished exception=Connection"
)
# SQLSTATEs of injected faults: the server stops or starts, the disk is full, a client disconnected
FAULT_STATES = ("57P01", "57P02", "57P03", "53100", "08006", "08P01", "57014")
_SERVER_LINE = re.compile(r"^\S+ \S+ \S+ \[\d+\] (\w{5}) (ERROR|FATAL|PANIC):  (.*)$")


def count_stale(folder: Path) -> int:
    """Count the stale writes: a worker had lost the turn."""
    return sum(any(text in message for text in STALE) for _, message in _lines(folder))


def count_panics(log: Path) -> int:
    """Count the panics of the server that faults caused."""
    return len(re.findall(r"^.* PANIC:  ", log.read_text(errors="replace"), re.MULTILINE))


def judge_workers(folder: Path) -> Verdict:
    expected, unexpected = 0, Counter[str]()
    for level, message in _lines(folder):
        if level in ("warning", "error"):
            if EXPECTED.match(message):
                expected += 1
            else:
                unexpected[f"{level}: {message}"] += 1
    for file in sorted(folder.glob("*.err")):
        is_of_driver = False
        for text in filter(None, file.read_text(errors="replace").splitlines()):
            is_of_driver = text in DRIVER_MESSAGES or (is_of_driver and _TRACEBACK.match(text) is not None)
            if is_of_driver or EXPECTED.match(text.removeprefix("error: ")):
                expected += text in DRIVER_MESSAGES or not is_of_driver
            else:
                unexpected[f"{file.name}: {text}"] += 1
    return Verdict("no process said anything that the faults do not explain", _most(unexpected),
                   f"{expected} lines about outages")  # fmt: skip


def judge_server(log: Path) -> Verdict:
    expected, unexpected = 0, Counter[str]()
    for line in log.read_text(errors="replace").splitlines():
        if (found := _SERVER_LINE.match(line)) is None:
            continue
        state, severity, text = found.groups()
        if state in FAULT_STATES:
            expected += 1
        else:
            unexpected[f"{severity} {state} {text}"] += 1
    return Verdict("PostgreSQL logged no deadlock, no broken constraint, nothing unexpected", _most(unexpected),
                   f"{expected} lines about faults")  # fmt: skip


def _lines(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the level and message of each logged line, except lines that a kill cut short."""
    for file in sorted(folder.glob("*.log")):
        for line in file.read_text(errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue
            yield entry.get("level", "info"), f"{entry.get('message')} {entry.get('error', '')}".strip()


def _most(unexpected: Counter[str]) -> list[str]:
    return [f"{times} x {line[:300]}" for line, times in unexpected.most_common(LISTED_MAX)]

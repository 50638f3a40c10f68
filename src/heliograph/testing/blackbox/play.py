"""Play a scenario on a system: start its worker and its run, disturb it, and read its log."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heliograph.testing.blackbox.evidence import Evidence, payload_of
from heliograph.testing.blackbox.scenarios import Scenario
from heliograph.testing.blackbox.surface import Surface

_PAUSE_SECONDS = 0.3
_END_SECONDS = 10.0


def play(surface: Surface, scenario: Scenario, folder: Path) -> Evidence:
    """Play a scenario in a folder of its own, and return what was observed. Raises InvalidInput for a command that cannot run."""
    folder.mkdir(parents=True)
    # a name of its own: a system may remember the runs of earlier suites
    application = f"conformance-{scenario.name}-{secrets.token_hex(4)}"
    agents = folder / "agents.json"
    agents.write_text(json.dumps({"name": application, "agents": scenario.agents}), encoding="utf-8")
    values = {"agents": str(agents), "application": application, "run": f"run-{application}", "state": json.dumps(scenario.state),
              "folder": str(folder), "suite": str(folder.parent)}  # fmt: skip
    with _processes(surface, values, folder) as start:
        worker = start("worker")
        start("start")
        killed = 0
        if scenario.disturbance != "none" and _await(surface, values, lambda log: _has_call(log, "middle")):
            if scenario.disturbance == "kill":
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
                killed = len(surface.lines("signals", values))
                start("worker")
            else:
                surface.start("stop", values).wait(_END_SECONDS + surface.seconds)
        if scenario.disturbance != "stop":
            (folder / "gate").touch()
        has_ended = _await(surface, values, lambda log: any(each.get("name") == "workflow:end" for each in log))
        log = surface.lines("signals", values)
    has_envelopes = "envelopes" in surface.commands
    lines = surface.lines("envelopes", values) if has_envelopes else []
    envelopes = (
        [each["envelope"] for each in lines if isinstance(each.get("envelope"), dict)] if has_envelopes else None
    )
    _keep(folder / "signals.jsonl", log)
    _keep(folder / "envelopes.jsonl", envelopes or [])
    effects = folder / "effects"
    return Evidence(
        scenario, log, envelopes, has_ended, killed, effects.read_text().split() if effects.exists() else []
    )


def _keep(path: Path, objects: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(each) + "\n" for each in objects), encoding="utf-8")


@contextmanager
def _processes(
    surface: Surface, values: dict[str, str], folder: Path
) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Yield a function that starts a command; all of them end with the context."""
    running: list[subprocess.Popen[bytes]] = []
    with (folder / "output").open("wb") as output:

        def start(command: str) -> subprocess.Popen[bytes]:
            running.append(surface.start(command, values, output))
            return running[-1]

        try:
            yield start
        finally:
            for process in running:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await(surface: Surface, values: dict[str, str], is_reached: Callable[[list[dict[str, Any]]], bool]) -> bool:
    """Read the log until it has reached a point; return whether it did in time."""
    until = time.monotonic() + surface.seconds
    while time.monotonic() < until:
        if is_reached(surface.lines("signals", values)):
            return True
        time.sleep(_PAUSE_SECONDS)
    return False


def _has_call(log: list[dict[str, Any]], tool: str) -> bool:
    return any(each.get("name") == "tool:call" and payload_of(each).get("name") == tool for each in log)

"""Run a scenario on a system: start its worker and its run, disturb it, and read its log."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from heliograph.testing.blackbox.evidence import Evidence, payload_of
from heliograph.testing.blackbox.scenarios import POOL, Scenario
from heliograph.testing.blackbox.surface import Surface

_PAUSE_SECONDS = 0.5
# A pause takes at least this many times as long as the read of the log before it: reads without pauses would slow the system down.
_PAUSE_TIMES = 3
_END_SECONDS = 10.0
_WRONG_POOL_SECONDS = 2.0  # in which a worker of another pool would take the turn


def run_scenario(surface: Surface, scenario: Scenario, folder: Path) -> Evidence:
    """Run a scenario in a folder of its own, and return what was observed. Raises InvalidInput for a command that cannot run."""
    folder.mkdir(parents=True)
    # a name of its own: a system may remember the runs of earlier suites
    application = f"conformance-{scenario.name}-{secrets.token_hex(4)}"
    agents = folder / "agents.json"
    agents.write_text(
        json.dumps({"name": application, "routing": scenario.routing, "agents": scenario.agents}), encoding="utf-8"
    )
    values = {"agents": str(agents), "application": application, "run": f"run-{application}", "state": json.dumps(scenario.state),
              "folder": str(folder), "suite": str(folder.parent), "pool": POOL}  # fmt: skip
    with _processes(surface, values, folder) as start:
        worker = start("worker")
        start("start")
        disturbed = 0
        if scenario.disturbance != "none" and _await(surface, values, _is_in_the_middle)[0]:
            if scenario.disturbance == "pool":
                time.sleep(_WRONG_POOL_SECONDS)
            elif scenario.disturbance == "kill":
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
            disturbed = len(surface.lines("signals", values))
            if scenario.disturbance == "stop":
                with suppress(subprocess.TimeoutExpired):
                    start("stop").wait(surface.seconds)
            else:
                start("pool_worker" if scenario.disturbance == "pool" else "worker")
        if scenario.disturbance != "stop":
            (folder / "gate").touch()
        has_ended, log = _await(surface, values, lambda log: any(each.get("name") == "workflow:end" for each in log))
    lines = surface.lines("envelopes", values) if "envelopes" in surface.commands else []
    envelopes = [each["envelope"] for each in lines if isinstance(each.get("envelope"), dict)]
    _keep(folder / "signals.jsonl", log)
    _keep(folder / "envelopes.jsonl", envelopes)
    effects = folder / "effects"
    return Evidence(
        scenario, log, envelopes, has_ended, disturbed, effects.read_text().split() if effects.exists() else []
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


def _await(
    surface: Surface, values: dict[str, str], is_reached: Callable[[list[dict[str, Any]]], bool]
) -> tuple[bool, list[dict[str, Any]]]:
    """Read the log until it has reached a point; return whether it did in time, and the log."""
    began = time.monotonic()
    until = began + surface.seconds
    while not is_reached(log := surface.lines("signals", values)):
        now = time.monotonic()
        if now > until:
            return False, log
        time.sleep(max(_PAUSE_SECONDS, _PAUSE_TIMES * (now - began)))
        began = time.monotonic()
    return True, log


def _is_in_the_middle(log: list[dict[str, Any]]) -> bool:
    """Whether the log has the tool call `middle`, or the delegation to an agent of another pool."""
    names = {"tool:call": ("name", "middle"), "delegation": ("target_agent", "slow-printer")}
    asked = [(each, *names[each["name"]]) for each in log if each.get("name") in names]
    return any(payload_of(each).get(key) == name for each, key, name in asked)

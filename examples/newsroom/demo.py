"""`make demo`: review a real document, lose a worker to kill -9 in the middle, and finish anyway.

python -m examples.newsroom.demo [FILE] [REPORT]
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from examples.newsroom.app import CRITICS, app
from examples.newsroom.document import read_document
from heliograph import Runtime, Signal, open_runtime
from heliograph.errors import HeliographError
from heliograph.signals import draw_tree

LEASE_SECONDS = 2.0
PACE_SECONDS = 0.12
REPORT = "newsroom-report.md"
LEFT_OUT = {"agent:progress", "ready", "plan_ready", "action_complete", "reflection_complete", "terminated"}


def main(arguments: list[str]) -> int:
    document = Path(arguments[0] if arguments else "README.md")
    report = Path(arguments[1] if len(arguments) > 1 else REPORT).resolve()
    try:
        read_document(document)  # a wrong path fails before a server starts
        return asyncio.run(_show(document.resolve(), report))
    except HeliographError as error:
        print(f"newsroom: {error.message}", file=sys.stderr)
        return error.exit_code


async def _show(document: Path, report: Path) -> int:
    started = time.monotonic()
    async with open_runtime() as runtime:
        state = {"path": str(document), "report_path": str(report)}
        run_id, _ = await runtime.start(app.workflow, state)
        print(f"{run_id} reviews {document.name}\n")
        workers = [_start_worker()]
        signals: list[Signal] = []
        try:
            async for happened in runtime.follow(run_id):
                signals.append(happened)
                _print_signal(happened)
                if len(workers) == 1 and _is_the_middle(signals):
                    _kill(workers[0], signals)
                    workers.append(_start_worker())
        finally:
            _stop(workers)
        return await _sum_up(runtime, run_id, signals, report, time.monotonic() - started)


def _start_worker() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "heliograph.cli.main", "worker", "examples.newsroom.app:app",
               "--lease", str(LEASE_SECONDS)]  # fmt: skip
    environment = {**os.environ, "NEWSROOM_PACE": str(PACE_SECONDS)}
    worker = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(f"worker {worker.pid} started")
    return worker


def _stop(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.wait()


def _is_the_middle(signals: list[Signal]) -> bool:
    """Whether every critic is running and none has ended."""
    last = signals[-1]
    at_work = {s.agent for s in signals if s.name == "agent:progress"}
    is_done = any(s.name.startswith("review:") for s in signals)
    fraction = last.payload["fraction"] if last.name == "agent:progress" and isinstance(last.payload, dict) else 0
    return is_done or (at_work >= set(CRITICS) and isinstance(fraction, float) and fraction >= 0.25)


def _kill(worker: subprocess.Popen[bytes], signals: list[Signal]) -> None:
    done = {s.agent for s in signals if s.name == "agent:completed"}
    at_work = sorted({str(s.agent) for s in signals if s.name == "agent:activated"} - {str(a) for a in done})
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    print(f"\n  kill -9 {worker.pid}: it was running {', '.join(at_work)}\n")


def _print_signal(happened: Signal) -> None:
    payload = happened.payload if isinstance(happened.payload, dict) else {}
    match happened.name:
        case "agent:progress":
            print(f"  {happened.agent:12} {float(str(payload['fraction'])):4.0%}  {payload['message']}")
        case "agent:activated":
            print(f"  {happened.agent:12} wakes")
        case "agent:completed":
            print(f"  {happened.agent:12} done")
        case "agent:failed":
            print(f"  {happened.agent:12} failed: {payload['error']}")
        case "text:complete":
            print(f"  {happened.agent:12} {payload['content']}")


async def _sum_up(runtime: Runtime, run_id: str, signals: list[Signal], report: Path, seconds: float) -> int:
    end = signals[-1].payload
    assert isinstance(end, dict)
    print("\nwhat caused what (phases and progress left out)")
    print("\n".join(f"  {line}" for line in draw_tree([s for s in signals if s.name not in LEFT_OUT])))
    turns = await runtime.reader.turns(run_id=run_id)
    recovered = [turn for turn in turns if turn.attempts]
    print("\nwhat was recovered")
    for turn in reversed(recovered):
        leases = await runtime.reader.leases(turn.turn_id)
        owners = " -> ".join(f"epoch {lease.turn_epoch} by {lease.owner.rsplit(':', 1)[0]}" for lease in leases)
        print(f"  {turn.agent:12} {owners}")
    wrong = await runtime.database.call("doctor", runtime.settings.project, False)
    print(f"\n{len(turns)} turns, {len(signals)} signals, {len(recovered)} recovered after kill -9, "
          f"{len(wrong)} broken invariants")  # fmt: skip
    print(f"outcome {end['outcome']} in {seconds:.1f} s")
    print(f"report  {report}")
    return 0 if end["outcome"] == "success" and not wrong else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

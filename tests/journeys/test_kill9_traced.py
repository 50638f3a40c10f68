"""`kill -9` in the middle of a traced turn: the spans of both processes are one trace, and their parents exist."""

import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from heliograph.ids import span_id_of, trace_id_of
from tests.journeys.kit import forked
from tests.reach.embedded_kit import eventually
from tests.reach.otlp_receiver import Receiver, receiving_grpc, receiving_http
from tests.runtime.test_tracing import check_whole

ROOT = Path(__file__).parent.parent.parent


class TracedRun:
    """Processes of one run, with telemetry. delay_ms: how long spans that have ended wait for their export."""

    def __init__(self, url: str, folder: Path, run_id: str, receiver: Receiver, protocol: str, delay_ms: int):
        self.began, self.gate, self._run_id = folder / "began", folder / "gate", run_id
        self._environment = {
            **os.environ, "HELIOGRAPH_DATABASE_URL": url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "KILL9_BEGAN": str(self.began),
            "KILL9_GATE": str(self.gate), "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_BSP_SCHEDULE_DELAY": str(delay_ms),
        }  # fmt: skip

    def begin(self) -> "subprocess.Popen[str]":
        command = forked("tests.journeys.kill9_traced_app", self._run_id)
        return subprocess.Popen(command, env=self._environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)

    def end(self) -> None:
        """Let another process end the run."""
        self.gate.touch()
        process = self.begin()
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors


@pytest.mark.more
@pytest.mark.proves("OBS-08")
@pytest.mark.parametrize(("protocol", "receiving"), [("http/protobuf", receiving_http), ("grpc", receiving_grpc)])
async def test_trace_of_a_killed_worker_continues_under_the_next_owner(
    database_url: str, tmp_path: Path, protocol: str, receiving: Callable[[], AbstractContextManager[Receiver]]
) -> None:
    run_id = "run_traced"
    with receiving() as receiver:
        run = TracedRun(database_url, tmp_path, run_id, receiver, protocol, delay_ms=50)
        process = run.begin()
        eventually(run.began.exists, 40)
        receiver.wait_for("chat scripted", 2)
        process.kill()
        process.communicate()
        assert receiver.named("invoke_agent worker") == []
        run.end()
        receiver.wait_for("invoke_workflow kill9-traced")
    assert {span.trace_id for span in receiver.spans} == {trace_id_of(run_id)}
    ids = [span.span_id for span in receiver.spans]
    assert len(ids) == len(set(ids))
    root, turn = receiver.one("invoke_workflow kill9-traced"), receiver.one("invoke_agent worker")
    assert (root.parent_id, root.span_id) == ("", span_id_of(run_id))
    assert [span.name for span in receiver.spans if span.parent_id not in ("", *ids)] == []
    names = ("chat scripted", "execute_tool quick", "execute_tool wait", "claim worker")
    calls = [span for span in receiver.spans if span.name in names]
    assert {span.parent_id for span in calls} == {turn.span_id}
    assert [len(receiver.named(name)) for name in names] == [3, 1, 1, 1]
    assert turn.start <= receiver.one("execute_tool quick").start <= receiver.one("claim worker").start
    assert len(receiver.one("claim worker").links) == 1  # to the claim of the killed worker


@pytest.mark.more
async def test_spans_that_ended_before_a_kill_and_were_not_exported_are_missing_and_no_others(
    database_url: str, tmp_path: Path
) -> None:
    run_id = "run_unexported"
    with receiving_http() as receiver:
        run = TracedRun(database_url, tmp_path, run_id, receiver, "http/protobuf", delay_ms=600_000)
        process = run.begin()
        eventually(run.began.exists, 40)  # two model calls and a tool call have ended
        process.kill()
        process.communicate()
        assert receiver.spans == []
        run.end()
        receiver.wait_for("invoke_workflow kill9-traced")
    check_whole(receiver, run_id)
    counts = {
        name: len(receiver.named(name))
        for name in ("chat scripted", "execute_tool quick", "execute_tool wait", "start kill9-traced")
    }
    assert counts == {"chat scripted": 1, "execute_tool quick": 0, "execute_tool wait": 1, "start kill9-traced": 0}
    turn = receiver.one("invoke_agent worker")
    assert turn.start < receiver.one("claim worker").start  # since the claim of the killed worker
    assert receiver.one("execute_tool wait").parent_id == turn.span_id

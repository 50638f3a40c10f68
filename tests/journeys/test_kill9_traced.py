"""`kill -9` in the middle of a traced turn: the spans of both processes are one trace, and their parents exist."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from heliograph.ids import span_id_of, trace_id_of
from tests.reach.embedded_kit import eventually
from tests.reach.otlp_receiver import Receiver, receiving_grpc, receiving_http

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.more
@pytest.mark.proves("OBS-08")
@pytest.mark.parametrize(("protocol", "receiving"), [("http/protobuf", receiving_http), ("grpc", receiving_grpc)])
async def test_trace_of_a_killed_worker_continues_under_the_next_owner(
    database_url: str, tmp_path: Path, protocol: str, receiving: Callable[[], AbstractContextManager[Receiver]]
) -> None:
    began, gate, run_id = tmp_path / "began", tmp_path / "gate", "run_traced"
    with receiving() as receiver:
        environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": database_url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                       "KILL9_BEGAN": str(began), "KILL9_GATE": str(gate), "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
                       "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_BSP_SCHEDULE_DELAY": "50"}  # fmt: skip

        def begin() -> "subprocess.Popen[str]":
            return subprocess.Popen([sys.executable, "-m", "tests.journeys.kill9_traced_app", run_id], env=environment, cwd=ROOT,
                                    stderr=subprocess.PIPE, text=True)  # fmt: skip

        process = begin()
        eventually(began.exists, 40)
        receiver.wait_for("chat scripted", 2)
        process.kill()
        process.communicate()
        assert receiver.named("invoke_agent worker") == []
        gate.touch()
        process = begin()
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
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

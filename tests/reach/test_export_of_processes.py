"""The export of spans of real processes that fork: no process takes the spans or the connection of another one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.reach.forked_exporter import COUNT
from tests.reach.otlp_receiver import Receiver, receiving_grpc, receiving_http

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.more
@pytest.mark.parametrize(
    ("protocol", "receiving"),
    [("http/protobuf", partial(receiving_http, keeps_connections=True)), ("grpc", receiving_grpc)],
)
def test_process_that_has_exported_and_its_fork_export_all_their_spans_over_connections_of_their_own(
    protocol: str, receiving: Callable[[], AbstractContextManager[Receiver]]
) -> None:
    with receiving() as receiver:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
                       "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}  # fmt: skip
        ran = subprocess.run([sys.executable, "-m", "tests.reach.forked_exporter"], env=environment, cwd=ROOT, capture_output=True,
                             text=True, timeout=60, check=False)  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    names = sorted(span.name for span in receiver.spans)
    assert names == ["before", *(f"{who} {n}" for who in ("child", "parent") for n in range(COUNT))]
    owners = [{name.split()[0].replace("before", "parent") for name in kept} for kept in receiver.connections.values()]
    assert all(len(each) == 1 for each in owners), owners


def test_fork_while_an_outage_is_reported_does_not_block_the_export_of_the_child() -> None:
    ran = subprocess.run([sys.executable, "-m", "tests.reach.outage_in_fork"], cwd=ROOT, capture_output=True, text=True, timeout=60,
                         env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}, check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "does not accept spans" in ran.stderr

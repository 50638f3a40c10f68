"""`helio worker --listen` in a process of its own: pages, keys, and the settings that it rejects."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from heliograph.telemetry import metrics_names
from tests.faces.cli_support import Running, Shell, open_shell

KEY = "key-of-prometheus"


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    return open_shell(tmp_path, database_url)


@pytest.fixture
def started() -> Iterator[list[Running]]:
    processes: list[Running] = []
    yield processes
    for process in processes:
        process.signal(signal.SIGKILL)
        process.end()


def url_of(process: Running) -> str:
    found = re.search(r"on (http://\S+?)(,|$)", process.read_until("serves /metrics"))
    assert found is not None
    return found[1]


def get(url: str, key: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={} if key is None else {"Authorization": f"Bearer {key}"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def entry(until: datetime, scopes: str = "metrics", key: str = KEY) -> str:
    return f"{scopes}:{until:%Y-%m-%d}:{sha256(key.encode()).hexdigest()}"


@pytest.mark.more
@pytest.mark.proves("OBS-01", "OBS-02", "LC-102", "LC-103")
async def test_prometheus_reads_the_metrics_of_a_worker_process(shell: Shell, started: list[Running]) -> None:
    worker = shell.start("worker", "press.py:app", "--listen", "127.0.0.1:0")
    started.append(worker)
    url = await asyncio.to_thread(url_of, worker)
    assert await asyncio.to_thread(get, f"{url}/live") == (200, "live\n")
    done = await asyncio.to_thread(shell.helio, "run", "press.py:app", "--no-worker")
    assert done.returncode == 0, done.stderr
    assert await asyncio.to_thread(get, f"{url}/ready") == (200, "ready\n")
    status, text = await asyncio.to_thread(get, f"{url}/metrics")
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(text)}
    known = {metric.text_name.removesuffix("_total"): metric for metric in metrics_names.ALL}
    assert set(families) <= set(known)
    assert {name: family.type for name, family in families.items()} == {name: known[name].kind for name in families}
    labels = {
        name: {key for each in family.samples for key in each.labels} - {"le"} for name, family in families.items()
    }
    assert [name for name in families if labels[name] and labels[name] != set(known[name].text_labels)] == []
    [ready] = [each for each in families["signal_count"].samples if each.labels["signal_type"] == "ready"]
    assert ready.value == 2
    [act] = [each for each in families["agent_lifecycle_act_started"].samples if each.labels["agent"] == "critic"]
    assert act.value == 1
    worker.signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.end) == 0


@pytest.mark.proves("S4")
@pytest.mark.parametrize("keys", ["", "expired", "other project"])
def test_worker_on_all_addresses_without_a_valid_key_exits_with_2(tmp_path: Path, keys: str) -> None:
    today = datetime.now(UTC)
    entries = {
        "": "",
        "expired": entry(today - timedelta(days=2)),
        "other project": entry(today + timedelta(days=2), "metrics@other"),
    }
    shell = Shell(tmp_path, "postgresql://nobody@127.0.0.1:1/none", {"HELIOGRAPH_LISTEN_KEYS": entries[keys]})
    done = shell.helio("worker", "press.py:app", "--listen", "0.0.0.0:0", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "key_required"
    assert "HELIOGRAPH_LISTEN_KEYS" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.more
@pytest.mark.proves("S4")
async def test_worker_with_a_key_serves_metrics_on_all_addresses_to_its_owner_only(
    tmp_path: Path, database_url: str, started: list[Running]
) -> None:
    soon = datetime.now(UTC) + timedelta(days=2)
    keys = f"{entry(soon)}, {entry(soon, 'metrics@other', 'other')}"
    settings = {"HELIOGRAPH_LISTEN": "0.0.0.0:0", "HELIOGRAPH_LISTEN_KEYS": keys}
    open_shell(tmp_path, database_url)
    worker = Shell(tmp_path, database_url, settings).start("worker", "press.py:app")
    started.append(worker)
    url = (await asyncio.to_thread(url_of, worker)).replace("0.0.0.0", "127.0.0.1")
    assert (await asyncio.to_thread(get, f"{url}/metrics"))[0] == 401
    assert (await asyncio.to_thread(get, f"{url}/metrics", "wrong"))[0] == 401
    assert (await asyncio.to_thread(get, f"{url}/metrics", "other"))[0] == 401
    assert (await asyncio.to_thread(get, f"{url}/live"))[0] == 200
    status, text = await asyncio.to_thread(get, f"{url}/metrics", KEY)
    assert (status, "heliograph_worker_slots 16" in text) == (200, True)


def test_worker_without_a_listener_imports_nothing_of_it(tmp_path: Path) -> None:
    modules = "['h11', 'heliograph.status', 'heliograph.telemetry.metrics', 'heliograph.telemetry.metrics_signals']"
    script = f"import sys, heliograph.cli.worker; assert not set({modules}) & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


@pytest.mark.more
async def test_json_lines_name_the_logger_and_the_turn(shell: Shell, started: list[Running]) -> None:
    chatty = Shell(shell.folder, shell.url, {"HELIOGRAPH_LOG_FORMAT": "json", "HELIOGRAPH_LOG": "info"})
    worker = chatty.start("worker", "press.py:app")
    started.append(worker)
    await asyncio.to_thread(worker.read_until, "started: serves press")
    done = await asyncio.to_thread(shell.helio, "run", "press.py:app", "--no-worker", "--run-id", "r1")
    assert done.returncode == 0, done.stderr
    line = json.loads(await asyncio.to_thread(worker.read_until, "agent critic of run r1"))
    assert (line["logger"], line["level"], line["run"], line["agent"]) == ("heliograph.worker", "info", "r1", "critic")
    assert line["turn"].startswith("turn_")


@pytest.mark.more
async def test_second_worker_on_a_port_exits_with_the_setting_and_a_killed_one_leaves_the_port_free(
    shell: Shell, started: list[Running]
) -> None:
    started.append(shell.start("worker", "press.py:app", "--listen", "127.0.0.1:0"))
    url = await asyncio.to_thread(url_of, started[0])
    address = url.removeprefix("http://")
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"GET /live HTTP/1.1\r\n")
        second = await asyncio.to_thread(shell.helio, "worker", "press.py:app", "--listen", address)
        assert second.returncode == 1, second.stderr
        assert "HELIOGRAPH_LISTEN" in second.stderr
        assert "Traceback" not in second.stderr
        started[0].signal(signal.SIGKILL)
        await asyncio.to_thread(started[0].end)
        started.append(shell.start("worker", "press.py:app", "--listen", address))
        assert await asyncio.to_thread(url_of, started[1]) == url
    silent = [socket.create_connection((host, int(port))) for _ in range(200)]
    assert await asyncio.to_thread(get, f"{url}/live") == (200, "live\n")
    started[1].signal(signal.SIGTERM)
    assert await asyncio.to_thread(started[1].end) == 0
    for each in silent:
        each.close()


@pytest.mark.parametrize(
    ("variable", "value", "code"),
    [("HELIOGRAPH_LOG", "info,worker=loud", "invalid_log_level"), ("HELIOGRAPH_LOG_FORMAT", "xml", "invalid_enum"),
     ("HELIOGRAPH_LISTEN", "everywhere", "invalid_address"), ("HELIOGRAPH_LISTEN_KEYS", "sesame", "invalid_key")],
)  # fmt: skip
def test_malformed_setting_exits_with_2_and_names_the_variable(
    tmp_path: Path, variable: str, value: str, code: str
) -> None:
    open_shell(tmp_path, None)
    more = {"HELIOGRAPH_LISTEN": "127.0.0.1:0"} if variable == "HELIOGRAPH_LISTEN_KEYS" else {}
    shell = Shell(tmp_path, "postgresql://nobody@127.0.0.1:1/none", {variable: value, **more})
    done = shell.helio("worker", "press.py:app")
    assert done.returncode == 2, done.stderr
    assert variable in done.stderr
    if code == "invalid_key":
        assert value not in done.stderr

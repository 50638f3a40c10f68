"""Adapters, without a database: what reaches a webhook, a file, a log, the metrics and a terminal."""

from __future__ import annotations

import base64
import io
import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from heliograph.adapters import JsonLines, Logs, Metrics, Terminal, Webhook
from heliograph.adapters.base import (
    DeliveryFailed,
    TargetElsewhere,
    TargetGone,
    TargetUnavailable,
)
from heliograph.adapters.signal_lines import SignalLines
from heliograph.adapters.webhook import BODY_BYTES_MAX, body_of
from heliograph.egress.messenger import Messenger
from heliograph.errors import InvalidInput, SetupError
from heliograph.policy.egress import EgressPolicy, EgressRejected
from heliograph.redaction import keep_out
from heliograph.signals.model import Signal
from heliograph.telemetry.metrics import Registry
from heliograph.telemetry.metrics_text import text_of
from heliograph.webhooks import verify_webhook
from tests.kept_logging import kept_logging
from tests.reach.adapter_kit import CANARY, NOW, logged, opened
from tests.reach.hook_server import Hook, hooked

SECRETS = ["whsec_" + base64.b64encode(bytes(32)).decode()]


def messenger(hook: Hook) -> Messenger:
    return Messenger(SECRETS, EgressPolicy(frozenset([hook.origin])))


def status(code: int, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {code} X", *headers, "", ""]).encode()


@pytest.mark.proves("P-17", "P-29")
async def test_webhook_is_signed_under_the_id_of_its_signal_and_redacted() -> None:
    keep_out(CANARY)
    async with hooked() as hook, opened(Webhook(f"{hook.url}?token=t"), messenger=messenger(hook)) as receive:
        await receive([logged(7, payload={"key": f"a {CANARY} b"})])
    [request] = hook.requests
    assert verify_webhook(request.headers, request.body, SECRETS, datetime.now(UTC)) == "sig_r_7"
    assert request.path == "/hook?token=t"
    assert json.loads(request.body) == {
        "id": "sig_r_7", "name": "order:placed", "payload": {"key": "a *** b"}, "timestamp": "2026-01-31T12:00:00.000000Z",
        "source": {"agent": "clerk", "parent": "sig_r_1"}, "run_id": "r", "seq": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "error", "after"),
    [
        (status(503, "Retry-After: 7"), TargetUnavailable, 7.0),
        (status(404), TargetUnavailable, 0.0),
        (status(302, "Location: /x"), TargetUnavailable, 0.0),
        (status(422), DeliveryFailed, None),
        (status(410), TargetGone, None),
        (None, TargetUnavailable, 0.0),
        (b"nonsense\r\n\r\n", TargetUnavailable, 0.0),
    ],
    ids=["away", "wrong URL", "redirect", "rejected", "gone", "hangs", "no HTTP"],
)
@pytest.mark.proves("P-18")
async def test_answer_of_a_receiver_decides_whether_signals_wait(
    answer: bytes | None, error: type[Exception], after: float | None
) -> None:
    async with (
        hooked(answer) as hook,
        opened(Webhook(hook.url, timeout_seconds=0.1), messenger=messenger(hook)) as receive,
    ):
        with pytest.raises(error) as caught:
            await receive([logged(1)])
    assert hook.origin in str(caught.value)
    assert "/hook" not in str(caught.value)  # a path may be a secret
    assert getattr(caught.value, "retry_after_seconds", None) == after


async def test_webhook_of_a_run_with_any_id_has_an_id_that_a_header_holds() -> None:
    signal: Signal = Signal(f"sig_\u00e9 {'x' * 190}%_7", "a:b", None, NOW, None, "r", 7, None)
    async with hooked() as hook, opened(Webhook(hook.url), messenger=messenger(hook)) as receive:
        await receive([signal])
    [request] = hook.requests
    expected = f"sig_%C3%A9%20{'x' * 190}%25_7"
    assert verify_webhook(request.headers, request.body, SECRETS, datetime.now(UTC)) == expected
    assert json.loads(request.body)["id"] == signal.id


async def test_webhook_is_not_sent_without_a_secret_or_to_another_host() -> None:
    async with hooked() as hook:
        with pytest.raises(SetupError, match="HELIOGRAPH_WEBHOOK_SECRETS"):
            async with opened(Webhook(hook.url)):
                pass
        with pytest.raises(EgressRejected, match="HELIOGRAPH_EGRESS_ALLOW"):
            async with opened(Webhook(hook.url), messenger=Messenger(SECRETS, EgressPolicy())):
                pass
        assert hook.connections == 0


@pytest.mark.proves("P-29")
async def test_adapters_send_no_text_that_looks_like_a_key(tmp_path: Path, records: list[logging.LogRecord]) -> None:
    key = "sk-proj-" + "a1B2" * 10
    signals = [
        logged(1, payload={"note": f"my\n{key} is", key: 1}),
        logged(2, "agent:failed", {"error": {"code": "X", "message": key}}),
    ]
    out, path = io.StringIO(), tmp_path / "signals.jsonl"
    for adapter in (Terminal(out), JsonLines(path), Logs()):
        async with opened(adapter) as receive:
            await receive(signals)
    sent = [body_of(signals[0]).decode(), path.read_text(), out.getvalue(), *(f"{vars(record)}" for record in records)]
    assert [("***" in text, key in text) for text in sent] == [(True, False)] * 5


def test_webhook_omits_a_payload_that_is_too_large() -> None:
    assert json.loads(body_of(logged(1, payload="x" * BODY_BYTES_MAX))).keys() == {
        "id", "name", "timestamp", "source", "run_id", "seq", "left_out"
    }  # fmt: skip


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    found: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record)

    with kept_logging("heliograph.signals"):
        logger = logging.getLogger("heliograph.signals")
        handler = Kept()
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        yield found
        logger.removeHandler(handler)


@pytest.mark.proves("P-20", "P-29")
async def test_records_have_levels_by_name_and_ids_as_fields(records: list[logging.LogRecord]) -> None:
    keep_out(CANARY)
    logs = Logs({"order:lost": "critical", "order:**": "warning", "agent:failed": "debug"})
    names = ["order:lost", "order:placed", "agent:failed", "error", "text:delta", "workflow:end"]
    async with opened(logs) as receive:
        await receive([logged(n, name, {"key": CANARY}, "cl\nerk") for n, name in enumerate(names)])
    assert [(record.getMessage().split()[0], record.levelname) for record in records] == [
        ("order:lost", "CRITICAL"), ("order:placed", "WARNING"), ("error", "ERROR"), ("workflow:end", "INFO"),
    ]  # fmt: skip
    assert records[1].getMessage() == 'order:placed  cl\\nerk  {"key":"***"}'
    fields = vars(records[1])
    assert CANARY not in str(fields)
    assert {key: fields[key] for key in ("signal_id", "signal_name", "run_id", "seq", "turn_id", "agent", "payload")} == {
        "signal_id": "sig_r_1", "signal_name": "order:placed", "run_id": "r", "seq": 1, "turn_id": "turn_1", "agent": "cl\nerk",
        "payload": {"key": "***"},
    }  # fmt: skip


async def test_metrics_count_names_within_bounds_and_no_ids() -> None:
    registry = Registry()
    with pytest.raises(TargetElsewhere, match="--listen"):
        async with opened(Metrics()):
            pass
    async with opened(Metrics(), "order:**", "order:placed", registry=registry) as receive:
        await receive([logged(n, f"order:{n}:seen") for n in range(300)])
        await receive([logged(900), logged(901)])
    text = text_of(registry.collect())
    assert 'heliograph_signals_total{subscription="shop.target",signal="order:placed"} 2\n' in text
    assert 'heliograph_signals_total{subscription="shop.target",signal="other"} 201\n' in text
    assert text.count("heliograph_signals_total{") == 101
    assert "sig_r_" not in text


@pytest.mark.proves("P-29")
async def test_terminal_prints_redacted_lines_without_control_characters() -> None:
    keep_out(CANARY)
    out = io.StringIO()
    async with opened(Terminal(out)) as receive:
        await receive([logged(1, payload={"text": f"\x1b[2J{CANARY}"}), logged(2, "text:delta", {"content": "x\ny"})])
    first, second = out.getvalue().splitlines()
    assert first.endswith('sig_r_1  order:placed  clerk  {"text":"\\u001b[2J***"}')
    assert "sig_r_2  text:delta" in second


async def test_terminal_escapes_what_its_encoding_lacks_and_ends_when_it_is_closed() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    async with opened(Terminal(out)) as receive:
        await receive([logged(1, payload={"text": "caf\u00e9"})])
        assert raw.getvalue().endswith(b'{"text":"caf\\xe9"}\n')
        out.close()
        with pytest.raises(TargetGone, match="is closed"):
            await receive([logged(2)])


def test_long_word_at_the_end_of_a_streamed_text_is_whole() -> None:
    lines: list[str] = []
    view = SignalLines(lines.append)
    view.show(logged(1, "text:delta", {"content": f"see https://example.org/{'a' * 300}"}))
    view.flush()
    assert "".join(line.split("  ")[-1].strip() for line in lines) == f"seehttps://example.org/{'a' * 300}"


@pytest.mark.proves("P-29")
@pytest.mark.parametrize("step", [1, 5, 17, 60])
def test_streamed_text_with_a_secret_is_redacted_before_it_is_broken_into_lines(step: int) -> None:
    keep_out("canary first line\ncanary second line", "unbroken-canary-" * 9)
    said = f"the key: canary first line\ncanary second line and {'unbroken-canary-' * 9} can\ncanary first\n"
    lines: list[str] = []
    view = SignalLines(lines.append)
    for start in range(0, len(said), step):
        view.show(logged(1, "text:delta", {"content": said[start : start + step]}))
    view.flush()
    assert [line.split("  ")[-1].strip() for line in lines] == ["the key: *** and *** can", "canary first"]


@pytest.mark.parametrize(
    ("raised", "error"),
    [(BrokenPipeError(), TargetGone), (OSError(28, "No space left on device"), TargetUnavailable)],
    ids=["closed", "full"],
)
async def test_closed_pipe_ends_a_terminal_and_a_full_disk_does_not(raised: OSError, error: type[Exception]) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise raised

    async with opened(Terminal(Broken())) as receive:
        with pytest.raises(error):
            await receive([logged(1)])


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: JsonLines(""), "invalid_path"),
        (lambda: JsonLines("a\0b"), "invalid_path"),
        (lambda: JsonLines("\ud800"), "invalid_path"),
        (lambda: JsonLines(7), "wrong_type"),  # type: ignore[arg-type]
        (lambda: Logs({"a:b": "loud"}), "invalid_log_level"),
        (lambda: Logs({"a:b*": "info"}), "invalid_wildcard"),
        (lambda: Logs({"a:b": []}), "invalid_log_level"),  # type: ignore[dict-item]
        (lambda: Logs({7: "info"}), "wrong_type"),  # type: ignore[dict-item]
        (lambda: Terminal("out.txt"), "wrong_type"),  # type: ignore[arg-type]
        (lambda: Terminal(io.BytesIO()), "wrong_type"),  # type: ignore[arg-type]
        (lambda: Logs("info"), "wrong_type"),  # type: ignore[arg-type]
        (lambda: Webhook("https://a.example", timeout_seconds=0), "out_of_range"),
    ],
    ids=[
        "no path",
        "NUL",
        "a surrogate",
        "a number",
        "a level",
        "a pattern",
        "a list",
        "no pattern",
        "a name",
        "bytes",
        "no object",
        "no time",
    ],
)
def test_invalid_argument_of_an_adapter_is_rejected(make: Callable[[], object], code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert caught.value.code == code

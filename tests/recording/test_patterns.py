"""Texts that look like keys are replaced in recordings, adapters and output, and ordinary texts are not."""

from __future__ import annotations

import json
import time

import pytest

from heliograph.adapters.signal_lines import SignalLines
from heliograph.key_patterns import StreamedText, json_without_secrets, text_without_secrets, without_secrets
from tests.rules.playback_kit import signal

KEY = "a1B2" * 10
KEYS = [
    f"sk-proj-{KEY}", f"sk_live_{KEY}", f"hf_{KEY}", f"glpat-{KEY}", f"ghp_{KEY}", f"ya29.{KEY}", f"xoxb-{KEY}", "AKIA" + "A1B2" * 4,
    f"Bearer {KEY}", "Basic dXNlcjpwYXNzd29yZA==", "bearer abcdefghijklmnopqrstuvwxyz", "amqp://ann:a-password@host/queue",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
]  # fmt: skip


@pytest.mark.parametrize("text", KEYS)
def test_key_is_replaced(text: str) -> None:
    found = without_secrets({"key": [f"say {text} twice"]})["key"][0]
    assert "***" in found
    assert secret_of(text) not in found
    assert text_without_secrets(f"say {text} twice") == found
    said = json.loads(json_without_secrets({"key": [f"say\n{text}\ttwice"]}))["key"][0]
    assert said.split() == found.split(), "in JSON, the letter of an escape is before the key"


@pytest.mark.parametrize("text", KEYS)
@pytest.mark.parametrize("before", ["say ", '{"a":"' + "b" * 80 + '","k":"', '"' * 95])
@pytest.mark.parametrize("step", [1, 3, 7])
def test_no_part_of_a_key_is_in_the_lines_of_a_streamed_text(text: str, before: str, step: int) -> None:
    lines = list[str]()
    view = SignalLines(lines.append)
    said = f"{before}{text}\n and more\n"
    for start in range(0, len(said), step):
        view.show(signal(1, "text:delta", "poet", payload={"content": said[start : start + step]}))
    view.flush()
    shown, secret = " ".join(lines), secret_of(text)
    assert "***" in shown
    assert shown.rstrip().endswith("and more")
    assert not [part for part in range(len(secret) - 7) if secret[part : part + 8] in shown], shown


def secret_of(text: str) -> str:
    """The part of a text that must not be shown."""
    if "BEGIN" in text:
        return "MIIEowIBAAKCAQEA"
    return text.rsplit(maxsplit=1)[-1].removeprefix("amqp://ann:").partition("@")[0]


@pytest.mark.parametrize("text", [
    "task-management-and-scheduling-2026", "run_desk-assignments-of-the-week_12", "a basic understanding of basic requirements",
    "Basic Requirements", "the bearer of good news", "https://example.org/a:b@c", "HAKIAABCDEFGHIJKLMNOPQ",
])  # fmt: skip
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert without_secrets(text) == text


def test_long_text_takes_time_in_proportion_to_its_length() -> None:
    started = time.process_time()
    for piece in ("a", "://", "bearer ", "basic  ", "eyJ", "sk-", "-----BEGIN "):
        without_secrets(piece * (200_000 // len(piece)))
    assert time.process_time() - started < 5.0, "it is quadratic: 200,000 characters take minutes"


@pytest.mark.parametrize("key", KEYS)
def test_no_piece_of_a_streamed_text_has_a_part_of_a_key(key: str) -> None:
    text = f"say {key} twice, and {key}"
    for size in (1, 2, 3, 7):
        streamed = StreamedText()
        pieces = [streamed.add(text[place : place + size]) for place in range(0, len(text), size)]
        found = "".join([*pieces, streamed.end()])
        assert secret_of(key) not in found
        assert (found, streamed.end()) == (text_without_secrets(text), "") or key.startswith("-----"), (
            "of a block, the last line may stay"
        )

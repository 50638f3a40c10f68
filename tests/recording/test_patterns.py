"""Texts that look like keys are replaced in recordings, and ordinary texts are not."""

from __future__ import annotations

import time

import pytest

from heliograph.recording.redaction import without_secrets

KEY = "a1B2" * 10


@pytest.mark.parametrize("text", [
    f"sk-proj-{KEY}", f"sk_live_{KEY}", f"hf_{KEY}", f"glpat-{KEY}", f"ghp_{KEY}", f"ya29.{KEY}", f"xoxb-{KEY}", "AKIA" + "A1B2" * 4,
    f"Bearer {KEY}", "Basic dXNlcjpwYXNzd29yZA==", "bearer abcdefghijklmnopqrstuvwxyz", "amqp://ann:a-password@host/queue",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
])  # fmt: skip
def test_key_is_replaced(text: str) -> None:
    secret = text.rsplit(maxsplit=1)[-1] if " " in text and "BEGIN" not in text else text.removeprefix("amqp://ann:")
    found = without_secrets({"key": [f"say {text} twice"]})["key"][0]
    assert "***" in found
    assert secret not in found


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

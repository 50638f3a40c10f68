"""Subscriptions and subscribers that are invalid are rejected before a call."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Client, Heliograph
from heliograph.errors import InvalidInput
from tests.runtime.kit import Rig


@pytest.mark.parametrize(
    ("name", "patterns", "options", "code"),
    [
        ("x" * 10_000, ["a:b"], {}, "invalid_identifier"),
        ("", ["a:b"], {}, "invalid_identifier"),
        ("a b\0'; drop", ["a:b"], {}, "invalid_identifier"),
        ("s", "a:b", {}, "wrong_type"),
        ("s", [], {}, "required_field"),
        ("s", ["a:b"] * 101, {}, "too_many"),
        ("s", ["a:b*"], {}, "invalid_wildcard"),
        ("s", ["a:b"], {"since": "later"}, "invalid_enum"),
        ("s", ["a:b"], {"after": {"run_a": -1}}, "out_of_range"),
        ("s", ["a:b"], {"after": ["run_a"]}, "wrong_type"),
        ("s", ["a:b"], {"lease_seconds": 0}, "out_of_range"),
    ],
)  # fmt: skip
async def test_invalid_subscription_is_rejected_before_a_call(
    name: str, patterns: Any, options: dict[str, Any], code: str, rig: Rig
) -> None:
    with pytest.raises(InvalidInput) as caught:
        await read_raw(rig.client, name, patterns, options)
    assert caught.value.code == code
    assert len(caught.value.message) < 500


async def read_raw(client: Client, name: str, patterns: Any, options: dict[str, Any]) -> None:
    async for _ in client.subscribe(name, patterns, **options):
        raise AssertionError("it is rejected")


def test_subscribers_of_an_application_are_checked() -> None:
    app = Heliograph("shop")
    app.on_signal("a:b", name="s")(lambda signal: None)
    for register, code in (
        (lambda: app.on_signal("a:b", name="s")(lambda signal: None), "duplicate_subscriber"),
        (lambda: app.on_signal(name="t")(lambda signal: None), "required_field"),
        (lambda: app.on_signal("a:b", name="t")(lambda: None), "wrong_type"),  # type: ignore[arg-type, misc]
        (lambda: app.on_signal("a:b", name="t", timeout_seconds=0)(lambda signal: None), "out_of_range"),
        (lambda: app.on_signal("a:b", name="t", max_attempts=1.5)(lambda signal: None), "out_of_range"),  # type: ignore[call-overload]
        (lambda: app.on_signal("a:b")(lambda signal: None), "required_field"),
    ):
        with pytest.raises(InvalidInput) as caught:
            register()
        assert caught.value.code == code


def test_number_of_a_subscriber_is_rejected_with_its_bounds() -> None:
    app = Heliograph("shop")
    with pytest.raises(InvalidInput, match="timeout_seconds must be a number over 0, up to 86400, not 0"):
        app.on_signal("a:b", name="s", timeout_seconds=0)(lambda signal: None)
    with pytest.raises(InvalidInput, match=r"max_attempts must be a whole number from 1 to 1000, not 1\.5"):
        app.on_signal("a:b", name="s", max_attempts=1.5)(lambda signal: None)  # type: ignore[call-overload]

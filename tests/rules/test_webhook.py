"""Signed webhooks: the accepted and the rejected ones."""

import hmac
from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest

from heliograph import Secret
from heliograph.errors import InvalidInput, Rejected
from heliograph.policy.webhook_signature import sign_webhook, verify_webhook

NOW = datetime(2030, 1, 1, tzinfo=UTC)
OLD, NEW = (f"whsec_{b64encode(bytes([n]) * 32).decode()}" for n in (1, 2))
BODY = b'{"status": "completed"}'


def test_signature_follows_standard_webhooks() -> None:
    """The example of their specification, whose signature we have not made."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    at = datetime.fromtimestamp(1614265330, UTC)
    headers = sign_webhook("msg_p5jXN8AQM9LWM0D4loKWxJek", at, b'{"test": 2432232314}', [secret])
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }  # fmt: skip


@pytest.mark.proves("S14")
@pytest.mark.parametrize("signed_with", [[OLD], [NEW], [OLD, NEW]])
@pytest.mark.parametrize("checked_with", [[OLD, NEW], [NEW, OLD]])
def test_either_secret_verifies_during_a_rotation(signed_with: list[str], checked_with: list[str]) -> None:
    headers = sign_webhook("msg_1", NOW, BODY, signed_with)
    spelled = {name.title(): value for name, value in headers.items()}
    assert verify_webhook(spelled, BODY, checked_with, NOW) == "msg_1"


@pytest.mark.proves("S14")
@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_webhook_within_five_minutes_is_accepted(seconds: int) -> None:
    headers = sign_webhook("msg_1", NOW, BODY, [OLD])
    assert verify_webhook(headers, BODY, [OLD], NOW + timedelta(seconds=seconds)) == "msg_1"


@pytest.mark.proves("S14")
@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": "msg_2"}, {"webhook-timestamp": str(int(NOW.timestamp()) + 1)}, {"webhook-timestamp": "soon"},
        {"webhook-timestamp": "-1"}, {"webhook-timestamp": "９"}, {"webhook-timestamp": "9" * 30}, {"webhook-id": ""},
        {"webhook-signature": ""}, {"webhook-signature": "v1,"}, {"webhook-signature": "v2,abc"}, {"webhook-signature": "v1,ü"},
    ],
)  # fmt: skip
def test_changed_webhook_is_rejected(changed: dict[str, str]) -> None:
    with pytest.raises(Rejected) as refused:
        verify_webhook({**sign_webhook("msg_1", NOW, BODY, [OLD]), **changed}, BODY, [OLD], NOW)
    assert refused.value.code == "bad_signature"


@pytest.mark.proves("S14")
def test_another_body_another_secret_another_time_and_no_header_are_rejected() -> None:
    headers = sign_webhook("msg_1", NOW, BODY, [OLD])
    for given, body, secrets, now in (
        (headers, BODY + b" ", [OLD], NOW), (headers, BODY, [NEW], NOW), ({}, BODY, [OLD], NOW),
        (headers, BODY, [OLD], NOW + timedelta(seconds=301)), (headers, BODY, [OLD], NOW - timedelta(seconds=301)),
    ):  # fmt: skip
        with pytest.raises(Rejected) as refused:
            verify_webhook(given, body, secrets, now)
        assert refused.value.code == "bad_signature"


@pytest.mark.proves("S14")
@pytest.mark.parametrize(
    "secrets", [[], "", OLD, [""], ["whsec_"], ["whsec_short"], ["plain text"], ["whsec_" + "A" * 200], [None]]
)
def test_missing_or_invalid_secret_rejects_everything(secrets: list[str]) -> None:
    for act in (
        lambda: sign_webhook("msg_1", NOW, BODY, secrets),
        lambda: verify_webhook(sign_webhook("msg_1", NOW, BODY, [OLD]), BODY, secrets, NOW),
    ):
        with pytest.raises(InvalidInput) as refused:
            act()
        assert refused.value.code == "invalid_secret"
        assert "short" not in refused.value.message


@pytest.mark.proves("S14")
def test_signatures_and_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    right = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return right(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    verify_webhook(sign_webhook("msg_1", NOW, BODY, [OLD, NEW]), BODY, [OLD, NEW], NOW)
    assert len(set(compared)) == 4  # every signature with every secret, also after one was right
    compared.clear()
    assert Secret("open sesame") == Secret("open sesame")
    assert Secret("open sesame") != Secret("open barley")
    assert len(compared) == 2

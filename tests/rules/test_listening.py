"""Where a listener may listen, and which keys open it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256

import pytest

from heliograph.errors import InvalidInput
from heliograph.policy.listening import METRICS, Listening, check_listening

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
KEY = "k" * 43


def entry(scopes: str = METRICS, until: str = "2027-01-31", key: str = KEY) -> str:
    return f"{scopes}:{until}:{sha256(key.encode()).hexdigest()}"


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("127.0.0.1:9464", "127.0.0.1", 9464), ("[::1]:0", "::1", 0), ("localhost:80", "127.0.0.1", 80), ("127.8.9.1:1", "127.8.9.1", 1)],
)  # fmt: skip
def test_loopback_needs_no_key(address: str, host: str, port: int) -> None:
    listening = check_listening(address, (), NOW)
    assert (listening.host, listening.port) == (host, port)
    assert listening.allows(METRICS, b"", NOW)


@pytest.mark.proves("S4")
@pytest.mark.parametrize(
    "address", ["0.0.0.0:9464", "[::]:9464", "10.0.0.7:9464", "[::ffff:10.0.0.1]:9464", "192.168.1.1:80"]
)
@pytest.mark.parametrize(
    "keys", [(), (entry(until="2026-11-25"),), (entry("metrics@other"),)], ids=["none", "expired", "other project"]
)
def test_other_addresses_need_a_key_for_metrics_that_is_valid(address: str, keys: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput, match="HELIOGRAPH_LISTEN_KEYS") as caught:
        check_listening(address, keys, NOW, ["news"])
    assert (caught.value.code, caught.value.exit_code) == ("key_required", 2)
    assert check_listening(address, (*keys, entry()), NOW, ["news"]).keys
    assert check_listening(address, (*keys, entry("metrics@news")), NOW, ["news"]).keys


@pytest.mark.proves("S4")
def test_key_opens_its_scope_until_the_end_of_its_last_day() -> None:
    listening = check_listening("0.0.0.0:1", [entry(until="2026-11-26")], NOW)
    assert opens(listening, KEY)
    assert not listening.allows("control", KEY.encode(), NOW)
    assert [opens(listening, key) for key in ("other", "", KEY[:-1], KEY + "k", KEY.upper(), "ü")] == [False] * 6
    assert opens(listening, KEY, NOW.replace(hour=23, minute=59))
    assert not opens(listening, KEY, NOW + timedelta(hours=12))
    assert opens(listening, KEY, (NOW + timedelta(hours=11)).astimezone(timezone(timedelta(hours=9))))


@pytest.mark.proves("S4")
@pytest.mark.parametrize(
    ("projects", "is_open"), [(["news"], True), (["news", "shop"], False), (["shop"], False), ([], False)]
)
def test_key_of_a_project_opens_workers_of_no_other_project(projects: list[str], is_open: bool) -> None:
    listening = check_listening("127.0.0.1:1", [entry("metrics@news"), entry(key="admin")], NOW, projects)
    assert (opens(listening, KEY), opens(listening, "admin")) == (is_open, True)


@pytest.mark.proves("S4")
def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return left == right

    listening = check_listening(
        "127.0.0.1:1", [entry(key="a"), entry(key="b"), entry(until="2026-11-25", key="c")], NOW
    )
    monkeypatch.setattr("hmac.compare_digest", compare)
    for key in ("a", "b", "c", "none", "", "x" * 5000):
        opens(listening, key)
    assert compared == [(32, 32)] * 3 * 6


def test_key_of_any_characters_opens() -> None:
    assert opens(check_listening("127.0.0.1:1", [entry(key="schlüssel-鍵")], NOW), "schlüssel-鍵")


def test_unknown_scope_is_rejected_with_the_scopes_that_exist() -> None:
    for scopes in ("metric", "metrics+control", "control@news"):
        with pytest.raises(InvalidInput, match="knows only metrics, and metrics@PROJECT") as caught:
            check_listening("127.0.0.1:1", [entry(scopes)], NOW)
        assert caught.value.code == "invalid_key"


def opens(listening: Listening, key: str, now: datetime = NOW) -> bool:
    return listening.allows(METRICS, key.encode(), now)


def test_keys_on_a_loopback_address_are_required_too() -> None:
    listening = check_listening("127.0.0.1:1", [entry()], NOW)
    assert (listening.allows(METRICS, b"", NOW), listening.allows(METRICS, KEY.encode(), NOW)) == (False, True)


@pytest.mark.parametrize(
    "address",
    ["", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "1.2.3:80", "999.1.1.1:80", "host.example:80",
     "::1:80", "[::1]", "[::1%lo]:80", "[127.0.0.1:80", "http://127.0.0.1:80", "127.0.0.1:80/metrics", "127.0.0.1:٣", "*:80"],
)  # fmt: skip
def test_malformed_address_is_rejected(address: str) -> None:
    with pytest.raises(InvalidInput, match=r"like 127\.0\.0\.1:9464") as caught:
        check_listening(address, (), NOW)
    assert caught.value.code == "invalid_address"


@pytest.mark.proves("S4", "S13")
@pytest.mark.parametrize(
    "wrong",
    ["plain-secret-key", "metrics:2027-01-31:plain-secret-key", "metrics:2027-02-30:" + "0" * 64, "metrics:soon:" + "0" * 64,
     ":2027-01-31:" + "0" * 64, "Metrics:2027-01-31:" + "0" * 64, "metrics:2027-01-31:" + "g" * 64, "metrics:2027-01-31:" + "0" * 63],
)  # fmt: skip
def test_malformed_key_is_rejected_and_not_repeated(wrong: str) -> None:
    with pytest.raises(InvalidInput, match="HELIOGRAPH_LISTEN_KEYS is malformed") as caught:
        check_listening("127.0.0.1:1", [wrong], NOW)
    assert caught.value.code == "invalid_key"
    assert "plain" not in caught.value.message

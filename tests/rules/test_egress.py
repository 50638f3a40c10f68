"""Rejected addresses: every spelling of a private address, and malformed URLs."""

import pytest

from heliograph.policy.egress import EgressPolicy, EgressRejected, is_public, parse, read_allowed

POLICY = EgressPolicy()


@pytest.mark.proves("S7")
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1", "http://[::ffff:127.0.0.1]", "http://2130706433", "http://0x7f.1", "http://169.254.169.254",
        "http://localhost.", "file:///etc/passwd", "gopher://example.com/_x", "https://good.example@evil.example",
        "https://127.0.0.1", "https://[::1]", "https://[::ffff:127.0.0.1]", "https://[::ffff:7f00:1]", "https://2130706433",
        "https://0x7f.1", "https://0x7f000001", "https://0177.0.0.1", "https://127.1", "https://127.0.0.1.", "https://1.2.3",
        "https://169.254.169.254/latest/meta-data", "https://[fd00:ec2::254]", "https://100.100.100.200", "https://10.0.0.1",
        "https://172.31.255.255", "https://192.168.1.1", "https://100.64.0.1", "https://0.0.0.0", "https://[::]",
        "https://[fe80::1%25eth0]", "https://[fe80::1]", "https://[64:ff9b::7f00:1]", "https://[2002:7f00:1::]",
        "https://[::127.0.0.1]", "https://168.63.129.16", "https://224.0.0.1", "https://255.255.255.255", "https://localhost.",
        "https://example.com:22", "https://example.com:8443", "https://example.com:0", "https://example.com:65536",
        "https://user:secret@example.com", "https://example.com#@evil.example", "https://exa mple.com", "https://example.com\\@evil",
        "https://example.com/\r\nX-Header: 1", "https://ex%61mple.com", "https://ⓔxample.com", "https://", "https:///path",
        "https://-example.com", "https://exa_mple..com", "//example.com", "example.com", "", "https://" + "a" * 2000,
        "ftp://example.com", "data:text/plain,x", "javascript:alert(1)", "HTTP://example.com", "https://[1.2.3.4]", "https://[::1",
        "https://１２７.0.0.1", "https://127。0。0。1",
    ],
)  # fmt: skip
def test_private_or_malformed_address_is_rejected(url: str) -> None:
    with pytest.raises(EgressRejected) as refused:
        POLICY.target(url)
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("https://example.com", "example.com", "/"),
        ("https://example.com:443/hook?x=1", "example.com", "/hook?x=1"),
        ("HTTPS://Example.COM/A", "example.com", "/A"),
        ("https://8.8.8.8/x", "8.8.8.8", "/x"),
        ("https://[2606:4700:4700::1111]/x", "[2606:4700:4700::1111]", "/x"),
        ("https://xn--bcher-kva.example/x", "xn--bcher-kva.example", "/x"),
        ("https://1password.example", "1password.example", "/"),
    ],
)
def test_public_address_is_allowed(url: str, authority: str, path: str) -> None:
    target = POLICY.target(url)
    assert (target.authority, target.path, target.port) == (authority, path, 443)


@pytest.mark.proves("S7")
@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["93.184.215.14", "10.0.0.1"],
        ["::1"],
        ["::ffff:10.0.0.1"],
        ["fe80::1%eth0"],
        ["not an address"],
        [],
    ],
)
def test_name_with_one_private_address_is_rejected(addresses: list[str]) -> None:
    with pytest.raises(EgressRejected):
        POLICY.check(POLICY.target("https://example.com"), addresses)


def test_all_public_addresses_of_a_name_may_be_connected_to() -> None:
    addresses = ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"]
    assert POLICY.check(POLICY.target("https://example.com"), addresses) == addresses
    assert all(map(is_public, addresses))


@pytest.mark.proves("S7", "G-23")
def test_allow_list_allows_exactly_its_origins() -> None:
    allowed = read_allowed(
        "http://127.0.0.1:9000, news=https://hooks.internal:8443 other=https://other.internal", "news"
    )
    policy = EgressPolicy(allowed)
    assert policy.check(policy.target("http://127.0.0.1:9000/hook"), ["127.0.0.1"]) == ["127.0.0.1"]
    assert policy.check(policy.target("https://hooks.internal:8443/hook"), ["10.0.0.1"]) == ["10.0.0.1"]
    for url in ("http://127.0.0.1:9001", "https://127.0.0.1:9000", "http://hooks.internal:8443"):
        with pytest.raises(EgressRejected):
            policy.target(url)
    with pytest.raises(EgressRejected):
        policy.check(policy.target("https://other.internal"), ["10.0.0.1"])


@pytest.mark.parametrize("entry", ["10.0.0.0/8", "hooks.internal", "https://hooks.internal/path", "*"])
def test_allow_entry_that_is_no_origin_is_rejected(entry: str) -> None:
    with pytest.raises(EgressRejected):
        read_allowed(entry, "default")


def test_address_has_one_canonical_form() -> None:
    assert parse("https://[2606:4700:0:0::1111]").host == "2606:4700::1111"

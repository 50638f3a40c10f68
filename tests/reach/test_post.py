"""Posting to places that others have named, over real sockets: the address that was checked, and no answer that hurts."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from heliograph.egress import post as posting
from heliograph.egress.post import Posted, PostFailed, post
from heliograph.policy.egress import EgressPolicy, EgressRejected
from heliograph.world.event_loop import new_event_loop
from tests.reach.hook_server import Hook, hooked


def policy(hook: Hook) -> EgressPolicy:
    return EgressPolicy(frozenset({hook.origin}))


async def posted(hook: Hook, body: bytes = b"{}", **options: Any) -> Posted:
    return await post(hook.url, {"webhook-id": "msg_1"}, body, policy(hook), **options)


def status(line: str, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {line}", *headers, "", ""]).encode()


@pytest.mark.proves("S15", "CTL-23")
async def test_post_sends_body_and_headers_and_reads_the_response() -> None:
    async with hooked(status("202 Accepted", "Content-Length: 2") + b"ok") as hook:
        assert await posted(hook, b'{"n": 1}') == Posted(202)
        (request,) = hook.requests
    assert (request.path, request.body, request.headers["webhook-id"]) == ("/hook", b'{"n": 1}', "msg_1")
    assert request.headers["host"] == f"127.0.0.1:{hook.port}"
    assert request.headers["content-type"] == "application/json"


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_event_loop], ids=["asyncio", "worker"])
def test_connection_that_the_server_has_closed_before_the_request_is_a_failure_of_the_network(
    monkeypatch: pytest.MonkeyPatch, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    real = posting._connect

    async def connect_late(target: Any, addresses: Sequence[str]) -> Any:
        reader, writer = await real(target, addresses)
        writer.transport.abort()
        await asyncio.sleep(0)
        return reader, writer

    async def fail() -> None:
        async with hooked() as hook:
            with pytest.raises(PostFailed, match="cannot be reached: Connection reset by peer"):
                await posted(hook)

    monkeypatch.setattr(posting, "_connect", connect_late)
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(fail())


CHUNKED = status("200 OK", "Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    ("response", "body"),
    [
        (status("200 OK", "Content-Length: 4") + b"abcd", b"abcd"),
        (status("200 OK", "Content-Length: 5") + b"abcde", None),
        (status("200 OK") + b"abcd", b"abcd"),
        (status("200 OK") + b"abcde", None),
        (CHUNKED + b"3;x=y\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", b"abcd"),
        (CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", None),
        (status("204 No Content", "Content-Length: 0"), b""),
    ],
)
async def test_body_is_read_up_to_the_limit(response: bytes, body: bytes | None) -> None:
    async with hooked(response) as hook:
        assert (await posted(hook, body_bytes_max=4)).body == body


async def test_body_in_too_many_chunks_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "_CHUNKS_MAX", 3)
    async with hooked(CHUNKED + b"1\r\na\r\n" * 2 + b"0\r\n\r\n", CHUNKED + b"1\r\na\r\n" * 3 + b"0\r\n\r\n") as hook:
        assert [(await posted(hook, body_bytes_max=9)).body for _ in range(2)] == [b"aa", None]


@pytest.mark.proves("RTE-07")
async def test_hanging_lookups_of_receivers_do_not_delay_other_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end, look_up = threading.Event(), socket.getaddrinfo

    def hang(host: str, *args: Any, **options: Any) -> Any:
        return may_end.wait(30) if host == "slow.example" else look_up(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    slow = [asyncio.create_task(posting.resolved("slow.example", 443)) for _ in range(64)]
    await asyncio.sleep(0)  # each has now given its lookup to the threads
    for abandoned in slow[:32]:
        abandoned.cancel()
    try:
        async with asyncio.timeout(20):
            assert await posting.resolved("127.0.0.1", 443) == ["127.0.0.1"]
            assert await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 5432)
    finally:
        may_end.set()
        ends = await asyncio.gather(*slow, return_exceptions=True)
    assert ({type(end) for end in ends[:32]}, {type(end) for end in ends[32:]}) == (
        {asyncio.CancelledError},
        {TypeError},
    )


@pytest.mark.parametrize(
    "response",
    [status("200 OK", "Content-Length: 4") + b"abc", CHUNKED + b"x\r\n", CHUNKED + b"3\r\na", CHUNKED + b"1" * 20_000],
)
async def test_malformed_body_is_a_failure_that_may_pass(response: bytes) -> None:
    async with hooked(response) as hook:
        with pytest.raises(PostFailed):
            await posted(hook, body_bytes_max=4)


@pytest.mark.proves("S7", "S15")
async def test_redirect_is_an_answer_and_is_not_followed() -> None:
    async with hooked() as inside, hooked(status("307 Temporary Redirect", f"Location: {inside.url}")) as hook:
        assert (await posted(hook)).status == 307
        assert inside.connections == 0


@pytest.mark.proves("S7")
async def test_forbidden_receiver_is_never_connected_to() -> None:
    async with hooked() as hook:
        for url in (hook.url, f"http://localhost:{hook.port}/hook", f"http://[::ffff:127.0.0.1]:{hook.port}/hook",
                    f"http://2130706433:{hook.port}/hook", f"http://0x7f.1:{hook.port}/hook"):  # fmt: skip
            with pytest.raises(EgressRejected):
                await post(url, {}, b"{}", EgressPolicy())
        assert hook.connections == 0


@pytest.mark.proves("S7")
async def test_name_with_a_private_address_is_rejected_by_that_address() -> None:
    async def inside(host: str, port: int) -> Sequence[str]:
        return ["93.184.215.14", "127.0.0.1"]

    with pytest.raises(EgressRejected, match="not on the public internet"):
        await post("https://rebind.example/hook", {}, b"{}", EgressPolicy(), resolve=inside)
    with pytest.raises(EgressRejected):
        await post("https://localhost/hook", {}, b"{}", EgressPolicy())  # by the resolver of this machine


@pytest.mark.proves("S7")
async def test_connection_goes_to_the_checked_address_after_one_lookup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A resolver that returns a public address first, and a private one from then on."""
    lookups: list[str] = []
    connected: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        lookups.append(host)
        return ["93.184.215.14"] if len(lookups) == 1 else ["127.0.0.1"]

    async def connect(host: str, port: int, **options: Any) -> Any:
        connected.append(host)
        assert options["server_hostname"] == "rebind.example"
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(asyncio, "open_connection", connect)
    with pytest.raises(PostFailed):
        await post("https://rebind.example/hook", {}, b"{}", EgressPolicy(), resolve=rebinding)
    assert (lookups, connected) == (["rebind.example"], ["93.184.215.14"])


@pytest.mark.proves("S15")
async def test_hanging_receiver_is_abandoned_in_bounded_time() -> None:
    async with hooked(None) as hook:
        started = time.monotonic()
        with pytest.raises(PostFailed, match=r"did not answer within 0.3 s"):
            await posted(hook, seconds=0.3)
        assert time.monotonic() - started < 5


@pytest.mark.proves("S15")
async def test_endless_response_is_closed_after_its_head() -> None:
    async with hooked(status("200 OK", "Content-Length: 1073741824")) as hook:
        hook.endless = b"x" * 65536
        assert (await posted(hook)).status == 200


@pytest.mark.proves("S15", "S11")
@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, b"no http\r\n\r\n", b"", b"HTTP/1.1 200", b"\r\n\r\n"]
)
async def test_malformed_response_is_a_recoverable_failure(answer: bytes) -> None:
    async with hooked(answer) as hook:
        with pytest.raises(PostFailed) as failed:
            await posted(hook)
        assert failed.value.recoverable


async def test_informational_responses_are_skipped_up_to_a_bound() -> None:
    hint = status("103 Early Hints", "Link: </x>")
    async with hooked(hint * 2 + status("204 No Content")) as hook:
        assert (await posted(hook)).status == 204
    async with hooked(hint * 50) as hook:
        with pytest.raises(PostFailed, match="8 interim responses"):
            await posted(hook)


async def test_receiver_may_request_a_delay() -> None:
    async with hooked(status("503 Busy", "Retry-After: 120")) as hook:
        assert await posted(hook) == Posted(503, 120.0)


async def test_refused_connection_is_a_recoverable_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        hook = Hook(taken.getsockname()[1])
        with pytest.raises(PostFailed, match="cannot be reached"):
            await posted(hook)


@pytest.mark.proves("S7")
async def test_certificate_is_checked_against_the_requested_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, server = certificates(tmp_path, "hook.example")
    monkeypatch.setattr(posting, "_tls", lambda: trusted)

    async def local_resolver(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with hooked(tls=server) as hook:
        allowed = EgressPolicy(frozenset(f"https://{name}.example:{hook.port}" for name in ("hook", "other")))
        assert (
            await post(f"https://hook.example:{hook.port}/x", {}, b"{}", allowed, resolve=local_resolver)
        ).status == 204
        assert hook.requests[0].headers["host"] == f"hook.example:{hook.port}"
        with pytest.raises(PostFailed, match="the TLS handshake failed"):
            await post(f"https://other.example:{hook.port}/x", {}, b"{}", allowed, resolve=local_resolver)
        assert len(hook.requests) == 1


def certificates(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A context that trusts one certificate of its own making, and one that shows it."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("192.0.2.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True).sign(key, hashes.SHA256())
    )  # fmt: skip
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate_file, key_file)
    return ssl.create_default_context(cafile=str(certificate_file)), server

"""Send each signal as a signed POST to a URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import quote

from heliograph.adapters.base import (
    AdapterServices,
    DeliveryFailed,
    Receive,
    TargetGone,
    TargetUnavailable,
)
from heliograph.definitions.signal_subscribers import SignalSubscriber
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput, SetupError
from heliograph.key_patterns import json_without_secrets
from heliograph.policy.callbacks import is_final, is_taken
from heliograph.policy.egress import EgressRejected, parse
from heliograph.signals.model import Signal, to_wire

BODY_BYTES_MAX = 262_144
SECONDS_MAX = 60.0
_ID_CHARACTERS = "".join(map(chr, range(33, 127))).replace("%", "")  # of a header
_REJECTIONS = frozenset((400, 413, 415, 422))  # about this message; any other status is about the receiver


class Webhook:
    """Sends each signal as a POST, signed with HELIOGRAPH_WEBHOOK_SECRETS, to a URL that HELIOGRAPH_EGRESS_ALLOW allows.

    The body is the signal as JSON, with secrets redacted. The header `webhook-id` is the id of the signal, the same for each attempt, with %
    and characters outside of printable ASCII percent-encoded. The
    signals of a run arrive in order: the next one is sent after a status from 200 to 299. While the receiver is away, its signals wait in
    the log. One that it rejects (400, 413, 415, 422) is sent a few times, and then skipped. 410 ends the deliveries of the process.
    timeout_seconds: of one attempt. Raises EgressRejected, InvalidInput (`out_of_range`).
    """

    kind = "webhook"
    page = 1

    def __init__(self, url: str, *, timeout_seconds: float = 15.0):
        target = parse(url)
        is_number = isinstance(timeout_seconds, int | float) and not isinstance(timeout_seconds, bool)
        if not is_number or not 0 < timeout_seconds <= SECONDS_MAX:
            raise InvalidInput(f"timeout_seconds of a webhook must be more than 0, up to {SECONDS_MAX:g}, not "
                               f"{safe_repr(repr_of(timeout_seconds))}", code="out_of_range", path="/timeout_seconds")  # fmt: skip
        self._url = target.url
        self._seconds = float(timeout_seconds)
        self.target = target.origin  # the rest of a URL is often a secret

    def __repr__(self) -> str:
        return f"Webhook({self.target!r})"

    @asynccontextmanager
    async def open(self, services: AdapterServices, subscription: SignalSubscriber) -> AsyncIterator[Receive]:
        if services.messenger is None:
            raise SetupError("this process has no HELIOGRAPH_WEBHOOK_SECRETS to sign webhooks; set it to whsec_ and the base64 of 24 to 64 "
                             "random bytes", code="no_webhook_secret")  # fmt: skip
        services.messenger.policy.target(self._url)  # raises EgressRejected

        async def receive(signals: Sequence[Signal]) -> None:
            for signal in signals:
                await self._post(services, signal)

        yield receive

    async def _post(self, services: AdapterServices, signal: Signal) -> None:
        from heliograph.egress.post import PostFailed  # late: applications are loaded without a network

        assert services.messenger is not None
        try:
            posted = await services.messenger.send(
                self._url,
                quote(signal.id, _ID_CHARACTERS),
                body_of(signal),
                services.world.now(),
                seconds=self._seconds,
            )
        except (EgressRejected, PostFailed) as error:
            raise TargetUnavailable(error.message) from None
        answer = f"{self.target} answered {posted.status}"
        if is_final(posted.status):
            raise TargetGone(f"{answer}: it will accept no more signals; delete the subscription, or change its URL")
        if posted.status in _REJECTIONS:
            raise DeliveryFailed(answer)
        if not is_taken(posted.status):
            raise TargetUnavailable(answer, posted.retry_after_seconds)


def body_of(signal: Signal) -> bytes:
    """The signal as JSON. Each attempt sends the same bytes."""
    wire = to_wire(signal)
    body = json_without_secrets(wire)
    if len(body) <= BODY_BYTES_MAX:
        return body
    return json_without_secrets(
        {key: value for key, value in wire.items() if key != "payload"} | {"left_out": ["payload"]}
    )

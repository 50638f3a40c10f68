"""Send signed callbacks to the URLs that the egress policy allows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from heliograph.egress.post import Posted, post
from heliograph.errors import InvalidInput
from heliograph.policy.egress import EgressPolicy, read_allowed
from heliograph.policy.webhook_signature import sign_webhook


class Messenger:
    """Signs with the secrets of a deployment, and sends where one project may."""

    def __init__(self, secrets: Sequence[str], policy: EgressPolicy):
        """Raises InvalidInput (`invalid_secret`)."""
        if not secrets:
            raise InvalidInput("a messenger signs with at least one secret", code="invalid_secret")
        sign_webhook(
            "", datetime.fromtimestamp(0, UTC), b"", secrets
        )  # raises for an invalid secret before a run exists
        self._secrets = tuple(secrets)
        self.policy = policy

    def __repr__(self) -> str:
        return f"Messenger({len(self._secrets)} secrets)"

    @classmethod
    def of(cls, secrets: Sequence[str], allow: str, project: str) -> Messenger | None:
        """The messenger of these settings; None without secrets. Raises InvalidInput, Rejected."""
        return cls(secrets, EgressPolicy(read_allowed(allow, project))) if secrets else None

    async def send(self, url: str, message_id: str, body: bytes, at: datetime) -> Posted:
        """Sign and POST a message. Raises EgressRejected, PostFailed."""
        return await post(url, sign_webhook(message_id, at, body, self._secrets), body, self.policy)

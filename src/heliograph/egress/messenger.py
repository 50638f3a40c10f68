"""Send signed webhooks to URLs that the egress policy allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from heliograph.egress.post import SECONDS_MAX, Posted, post
from heliograph.policy.egress import EgressPolicy, read_allowed
from heliograph.policy.webhook_signature import check_secrets, sign_webhook


class Messenger:
    """Sends webhooks, signed with the deployment's secrets, to the targets that one project's policy allows."""

    def __init__(self, secrets: Sequence[str], policy: EgressPolicy):
        """Raises InvalidInput (`invalid_secret`) for a missing or malformed secret."""
        self._secrets = check_secrets(secrets)
        self.policy = policy

    def __repr__(self) -> str:
        return f"Messenger({len(self._secrets)} secrets)"

    @classmethod
    def of(cls, secrets: Sequence[str], allow: str, project: str) -> Messenger | None:
        """Build the messenger of a project; None without secrets. allow: see `read_allowed`. Raises InvalidInput, Rejected."""
        return cls(secrets, EgressPolicy(read_allowed(allow, project))) if secrets else None

    async def send(
        self,
        url: str,
        message_id: str,
        body: bytes,
        at: datetime,
        *,
        seconds: float = SECONDS_MAX,
        body_bytes_max: int = 0,
        trace: Mapping[str, str] | None = None,
    ) -> Posted:
        """Sign and POST a message; see `post`. The same `message_id` lets the receiver deduplicate. trace: headers of its trace.

        Raises EgressRejected, PostFailed.
        """
        headers = {**(trace or {}), **sign_webhook(message_id, at, body, self._secrets)}
        return await post(url, headers, body, self.policy, seconds=seconds, body_bytes_max=body_bytes_max)

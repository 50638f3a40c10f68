"""Check the arguments that start a run or a worker."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.policy.egress import parse

_RUN_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_RUN_ID_MAX = 100
_CONCURRENCY_MAX = 1000
_LEASE_SECONDS_MIN = 0.1
_LEASE_SECONDS_MAX = 86_400


def check_callback(url: str) -> str:
    """Return a callback URL in its normal form. Before they send, workers check it against their policy. Raises EgressRejected."""
    return parse(url).url


def check_service(concurrency: int, lease_seconds: float) -> None:
    """Check the options of a worker. Raises InvalidInput (`wrong_type`, `out_of_range`)."""
    if isinstance(concurrency, bool) or not isinstance(concurrency, int):
        raise InvalidInput(f"concurrency must be a whole number, not {safe_repr(repr_of(concurrency))}", code="wrong_type",
                           path="/concurrency")  # fmt: skip
    if not 1 <= concurrency <= _CONCURRENCY_MAX:
        raise InvalidInput(f"concurrency must be from 1 to {_CONCURRENCY_MAX} turns at a time, not {concurrency}",
                           code="out_of_range", path="/concurrency")  # fmt: skip
    if isinstance(lease_seconds, bool) or not isinstance(lease_seconds, int | float):
        raise InvalidInput(f"lease_seconds must be a number, not {safe_repr(repr_of(lease_seconds))}", code="wrong_type",
                           path="/lease_seconds")  # fmt: skip
    if not _LEASE_SECONDS_MIN <= lease_seconds <= _LEASE_SECONDS_MAX:  # false for NaN, too
        raise InvalidInput(f"lease_seconds must be from {_LEASE_SECONDS_MIN} to {_LEASE_SECONDS_MAX}, not {lease_seconds}",
                           code="out_of_range", path="/lease_seconds")  # fmt: skip


def check_run_id(run_id: str) -> str:
    """Return a caller's run id unchanged. Raises InvalidInput (`invalid_id`)."""
    if (
        not isinstance(run_id, str)
        or not run_id
        or len(run_id) > _RUN_ID_MAX
        or not _RUN_ID_CHARACTERS.issuperset(run_id)
    ):
        raise InvalidInput(f"a run id must be 1 to {_RUN_ID_MAX} ASCII letters, digits, '_' or '-', not {safe_repr(run_id)}",
                           code="invalid_id", path="/run_id")  # fmt: skip
    return run_id


def request_hash(target: str, given: Any, callback_url: str | None) -> str:
    """Return a hash that is equal for equal requests to start a run.

    given: the caller's state, hashed without defaults, because a default may differ from call to call.
    """
    request = [target, given] if callback_url is None else [target, given, callback_url]
    return hashlib.sha256(msgspec.json.encode(request, order="deterministic")).hexdigest()

"""Where a worker's listener may listen, and who may read from it. Pure.

A key is known only by its SHA-256. `HELIOGRAPH_LISTEN_KEYS` contains an entry `<scopes>:<last day>:<SHA-256>` for each one, for example
`metrics:2027-01-31:9f86…`. The scope `metrics` is for the metrics of every worker, and `metrics@news` for those of workers that serve no
project but `news`; a `+` separates several scopes.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from ipaddress import ip_address

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput

METRICS = "metrics"  # the scope of keys that may read the metrics
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9.]{7,15}|localhost)):([0-9]{1,5})")
_SCOPE = r"[a-z_]{1,32}(?:@[a-z0-9_-]{1,63})?"
_KEY = re.compile(rf"({_SCOPE}(?:\+{_SCOPE})*):([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}):([0-9a-f]{{64}})")
_EXAMPLE = "metrics:2027-01-31:DIGEST, with the last day of the key and its SHA-256 in 64 hexadecimal digits"


@dataclass(frozen=True, slots=True)
class ListenKey:
    """A key of the listener. until: its last day, in UTC."""

    scopes: frozenset[str]
    until: date
    digest: bytes

    def allows(self, scopes: Set[str], digest: bytes, now: datetime) -> bool:
        """Whether a key of this digest has one of the scopes. Takes the same time for every digest."""
        is_key = hmac.compare_digest(self.digest, digest)
        return is_key and not self.scopes.isdisjoint(scopes) and self._is_valid(now)

    def _is_valid(self, now: datetime) -> bool:
        return now.astimezone(UTC).date() <= self.until


@dataclass(frozen=True, slots=True)
class Listening:
    """The settings of a listener. keys: without any, metrics need none, and the address is a loopback address.

    project: the only project of the worker; None for a worker of several projects.
    """

    host: str
    port: int
    keys: tuple[ListenKey, ...] = ()
    project: str | None = None

    def allows(self, scope: str, key: bytes, now: datetime) -> bool:
        """Whether a request with `key` may use `scope`. Compares with all keys, so the time reveals nothing about them."""
        digest = sha256(key).digest()
        scopes = {scope, f"{scope}@{self.project}"}
        allowing = [each for each in self.keys if each.allows(scopes, digest, now)]
        return not self.keys or bool(allowing)


def check_listening(address: str, keys: Sequence[str], now: datetime, projects: Collection[str] = ()) -> Listening:
    """Return the settings of a listener. projects: of its worker.

    Raises InvalidInput: `invalid_address`, `invalid_key`, and `key_required` for an address that other machines may reach, without a
    key for the metrics of this worker that is still valid.
    """
    host, port = _read_address(address)
    read = tuple(_read_key(entry) for entry in keys)
    project = next(iter(projects)) if len(set(projects)) == 1 else None
    scopes = {METRICS, f"{METRICS}@{project}"}
    if not is_loopback(host) and not any(key.allows(scopes, key.digest, now) for key in read):
        fitting = any(not key.scopes.isdisjoint(scopes) for key in read)
        problem = "every key for its metrics has expired" if fitting else "there is no key for its metrics"
        raise InvalidInput(f"the listener on {host}:{port} needs a key, because other machines may reach it, and {problem}: set "
                           f"HELIOGRAPH_LISTEN_KEYS to {_EXAMPLE}, or listen on 127.0.0.1:{port}", code="key_required",
                           path="HELIOGRAPH_LISTEN_KEYS")  # fmt: skip
    return Listening(host, port, read, project)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return ip_address(host).is_loopback


def _read_address(text: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(text)
    with suppress(ValueError):
        if found is not None and int(found[3]) <= 65535:
            host = "127.0.0.1" if found[2] == "localhost" else found[1] or found[2]
            return str(ip_address(host)), int(found[3])
    raise InvalidInput(f"HELIOGRAPH_LISTEN and --listen take an IP address and a port, like 127.0.0.1:9464 or [::1]:9464, not {safe_repr(text)}",
                       code="invalid_address", path="HELIOGRAPH_LISTEN")  # fmt: skip


def _read_key(entry: str) -> ListenKey:
    found = _KEY.fullmatch(entry)
    with suppress(ValueError):
        if found is not None:
            until, digest = date.fromisoformat(found[2]), bytes.fromhex(found[3])
            return ListenKey(frozenset(map(_read_scope, found[1].split("+"))), until, digest)
    # the entry is not part of the message: it may be a key that should have been hashed
    raise _invalid(f"an entry of HELIOGRAPH_LISTEN_KEYS is malformed; each one is {_EXAMPLE}")


def _read_scope(scope: str) -> str:
    if (name := scope.partition("@")[0]) != METRICS:
        raise _invalid(
            f"HELIOGRAPH_LISTEN_KEYS has a key with the scope {name}; the listener knows only {METRICS}, and {METRICS}@PROJECT"
        )
    return scope


def _invalid(problem: str) -> InvalidInput:
    return InvalidInput(problem, code="invalid_key", path="HELIOGRAPH_LISTEN_KEYS")

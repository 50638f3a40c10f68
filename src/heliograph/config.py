"""The settings of a process, read from its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput

__all__ = ["Settings"]

POSTGRES_VERSIONS = (18, 16)

CLOSE_SECONDS = 15.0  # how long the end of a process waits for a PostgreSQL that does not respond
PRUNE_SECONDS_MIN = 3600.0  # a gateway repeats its response for at least so long
PRUNE_SECONDS_MAX = 100 * 365 * 86_400.0
_SPAN = re.compile(r"([0-9]{1,9})([smhd])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a process.

    database_url: PostgreSQL 15 or later; None for the embedded server, with its data under `home`.
    prune_after_seconds: how long workers keep finished runs; None keeps them permanently.
    webhook_secrets: the secrets that sign callbacks; without any, this process sends no callbacks.
    gateway_secrets: the secrets that sign requests between gateways; without any, a gateway accepts no request.
    egress_allow: the private origins that callbacks may reach. mcp_allow: the private origins that MCP servers may have. There are
        two lists, because every caller may name a callback, but only the application names its MCP servers.
    listen: the address of the worker's listener; None for no listener. listen_keys: the keys for it, see `policy.listening`.
    close_seconds: how long `open_runtime` waits at its end for the connections of a PostgreSQL that does not respond, before it terminates them.
    """

    database_url: str | None = field(default=None, repr=False)
    home: Path = Path(".heliograph")
    project: str = "default"
    model: str | None = None
    postgres_version: int = 18
    nats_url: str | None = field(default=None, repr=False)
    prune_after_seconds: float | None = None
    webhook_secrets: tuple[str, ...] = field(default=(), repr=False)
    egress_allow: str = ""
    mcp_allow: str = ""
    gateway_secrets: tuple[str, ...] = field(default=(), repr=False)
    listen: str | None = None
    listen_keys: tuple[str, ...] = field(default=(), repr=False)
    close_seconds: float = CLOSE_SECONDS


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read the settings of a process from its environment; an empty variable counts as missing.

    The variables are HELIOGRAPH_DATABASE_URL, _HOME, _PROJECT, _MODEL, _POSTGRES_VERSION, _NATS_URL, _PRUNE_AFTER, _WEBHOOK_SECRETS,
    _EGRESS_ALLOW, _MCP_ALLOW, _GATEWAY_SECRETS, _LISTEN and _LISTEN_KEYS. Raises InvalidInput with the variable and its accepted values.
    """

    def get(name: str) -> str | None:
        return environment.get(f"HELIOGRAPH_{name}") or None

    version = get("POSTGRES_VERSION") or "18"
    if version not in {str(v) for v in POSTGRES_VERSIONS}:
        raise InvalidInput(
            f"HELIOGRAPH_POSTGRES_VERSION must be 18 or 16, not {safe_repr(version)}", code="out_of_range"
        )
    url = get("DATABASE_URL")
    if url is not None and not url.startswith(("postgresql://", "postgres://")):
        raise InvalidInput("HELIOGRAPH_DATABASE_URL must begin with postgresql://, as in postgresql://user@host/database",
                           code="invalid_url")  # fmt: skip
    return Settings(url, Path(get("HOME") or ".heliograph"), get("PROJECT") or "default", get("MODEL"), int(version),
                    get("NATS_URL"), _read_age(get("PRUNE_AFTER")), _read_list(get("WEBHOOK_SECRETS")),
                    get("EGRESS_ALLOW") or "", get("MCP_ALLOW") or "", _read_list(get("GATEWAY_SECRETS")),
                    get("LISTEN"), _read_list(get("LISTEN_KEYS")))  # fmt: skip


def read_span(text: str) -> float | None:
    """Convert a duration like `30s`, `10m`, `2h` or `30d` to seconds; None for any other text."""
    found = _SPAN.fullmatch(text)
    return None if found is None else float(int(found[1]) * _UNIT_SECONDS[found[2]])


def _read_list(text: str | None) -> tuple[str, ...]:
    return tuple((text or "").replace(",", " ").split())


def _read_age(text: str | None) -> float | None:
    if text is None:
        return None
    seconds = read_span(text) or 0.0
    if not PRUNE_SECONDS_MIN <= seconds <= PRUNE_SECONDS_MAX:
        raise InvalidInput(f"HELIOGRAPH_PRUNE_AFTER must be an age such as 30d, 12h or 90m, from one hour on, not {safe_repr(text)}",
                           code="out_of_range")  # fmt: skip
    return seconds

"""Settings, read once from an environment that is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heliograph.errors import InvalidInput, shown

POSTGRES_VERSIONS = (18, 16)


@dataclass(frozen=True, slots=True)
class Settings:
    """database_url: PostgreSQL 15 or later; None means the embedded server, whose data lie under `home`."""

    database_url: str | None = None
    home: Path = Path(".heliograph")
    project: str = "default"
    model: str | None = None
    postgres_version: int = 18
    nats_url: str | None = None


def read_settings(environment: Mapping[str, str]) -> Settings:
    """From HELIOGRAPH_DATABASE_URL, _HOME, _PROJECT, _MODEL, _POSTGRES_VERSION and _NATS_URL; empty means not set.

    Raises InvalidInput naming the variable and what it takes.
    """

    def get(name: str) -> str | None:
        return environment.get(f"HELIOGRAPH_{name}") or None

    version = get("POSTGRES_VERSION") or "18"
    if version not in {str(v) for v in POSTGRES_VERSIONS}:
        raise InvalidInput(f"HELIOGRAPH_POSTGRES_VERSION is 18 or 16, not {shown(version)}", code="out_of_range")
    url = get("DATABASE_URL")
    if url is not None and not url.startswith(("postgresql://", "postgres://")):
        raise InvalidInput("HELIOGRAPH_DATABASE_URL begins with postgresql://, such as postgresql://user@host/database",
                           code="invalid_url")  # fmt: skip
    return Settings(url, Path(get("HOME") or ".heliograph"), get("PROJECT") or "default", get("MODEL"), int(version),
                    get("NATS_URL"))  # fmt: skip

"""Replace secrets in recordings: those that the process knows, and texts that look like keys of well-known services."""

from __future__ import annotations

import re
from typing import Any

from heliograph.redaction import STARS, redacted

# Each begins where a word begins: otherwise the name `task-of-the-weekly-report` would contain a key.
_KEYS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,}"  # OpenAI, Anthropic
    r"|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"  # Stripe
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"  # AWS
    r"|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}"  # Google
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"  # JWT
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
    r")"
)
# A short token has a digit, or a capital after a small letter or a sign, unlike `basic understanding`.
_BEARER = re.compile(
    r"\b((?i:bearer|basic))\s+"
    r"(?:(?=[A-Za-z+/._~-]*(?:[0-9=]|[a-z+/._~-][A-Z]))[A-Za-z0-9+/._~-]{12,}|[A-Za-z0-9+/._~-]{20,})=*"
)
_PASSWORD = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(@)")  # without the scheme: a search for it is quadratic


def without_secrets(value: Any) -> Any:
    """Return a JSON value with stars in place of secrets."""
    return _without_keys(redacted(value))


def _without_keys(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) < 16:
            return value
        text = _KEYS.sub(STARS, value)
        return _PASSWORD.sub(rf"\g<1>{STARS}\g<2>", _BEARER.sub(rf"\g<1> {STARS}", text))
    if isinstance(value, dict):
        return {_without_keys(key): _without_keys(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_keys(item) for item in value]
    return value

"""Secrets in clear text: values that have the form of a key, or that look like one and stand at the name of a secret.

A manifest names its secrets: `secret://NAME`, or `${NAME}` for a variable of the environment.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

# Keys of providers and tools, by the form that their documentation gives. Examples that are cut off, like sk-...abc, do not have it.
_FORMS = re.compile(
    r"\bsk-[A-Za-z0-9_-]{20,}"
    r"|\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}|\bglpat-[A-Za-z0-9_-]{20,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_-]{35}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|\bhf_[A-Za-z0-9]{30,}|\bnpm_[A-Za-z0-9]{30,}"
    r"|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+"  # a JSON web token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\b[Bb]earer [A-Za-z0-9._~+/-]{20,}"
)
_REFERENCE = re.compile(r"secret://|[./~<]|.*[${][{]", re.DOTALL)  # a name, a path, a placeholder or an expression
_KEY_NAMES = re.compile(r"(api|access|secret|private|auth|encryption|signing|account)_?key|(^|_)(token|secret)$")
_PASSWORD_NAMES = re.compile(r"(^|_)(password|passwd|passphrase)$")
_KEY = re.compile(r"(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/=_.~-]{16,}|[0-9a-f]{32,}")
_PASSWORD = re.compile(r"(?=.*[A-Za-z])(?=.*[^A-Za-z_-])\S{8,}")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>]+")


def is_secret_literal(key: str, text: str) -> bool:
    """Whether a text is a secret in clear text. key: the key at which it stands, for example `api_key` or `apiKey`."""
    if _FORMS.search(text) or _has_password(text):
        return True
    if _REFERENCE.match(text):
        return False
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|-", "_", key).lower()
    return bool(
        (_KEY_NAMES.search(name) and _KEY.fullmatch(text))
        or (_PASSWORD_NAMES.search(name) and _PASSWORD.fullmatch(text))
    )


def _has_password(text: str) -> bool:
    """Whether a text has a URL with a password that is no expression."""
    for found in _URL.finditer(text):
        try:
            password = urlsplit(found[0]).password
        except ValueError:
            continue
        if password and "{" not in password and set(password) != {"*"}:
            return True
    return False

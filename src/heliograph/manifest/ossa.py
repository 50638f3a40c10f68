"""Manifests of the Open Standard Agents (OSSA): their versions, their kinds, and the schema of each version."""

from __future__ import annotations

import re
from dataclasses import replace

from heliograph.error_text import safe_repr
from heliograph.manifest.document import Document
from heliograph.manifest.problems import ManifestProblem
from heliograph.manifest.schemas import schema_of_kind
from heliograph.manifest.validation import validate

KINDS = ("Agent", "Task", "Workflow", "Flow")
NEWEST = "ossa/v0.5"

_VERSION = re.compile(
    r"ossa/v(?:0\.5(?:\.\d+)?|0\.4(?:\.(?P<patch>\d{1,9}))?|0\.3(?:\.\d+)?|0\.2\.[2-9](?:-dev)?|1)(?:\.\d+)?(?:-[a-zA-Z0-9.]+)?"
)
_ANY_V0_4 = "ossa/v0.4"
_FIRST_PATCH_OF_V0_5 = 7  # v0.4.7 introduced what v0.5 contains: identity, security and protocols


def validate_ossa(document: Document) -> list[ManifestProblem]:
    """Return the problems of a manifest under the schema of its version.

    `ossa/v0.4` without a third number stands for each version of v0.4. What only the stricter schema of v0.4.6 rejects is a warning there.
    """
    version = document.value.get("apiVersion") if isinstance(document.value, dict) else None
    if isinstance(version, str) and _VERSION.fullmatch(version) is None:
        return [document.problem(
            "unsupported_version", f"there is no version {safe_repr(version)} of the Open Standard Agents here",
            "/apiVersion", "write ossa/v0.5 or ossa/v0.4; versions from ossa/v0.2.2 are read as v0.4",
        )]  # fmt: skip
    found = validate(document, schema_of_kind(schema_name(version)), name=f"Open Standard Agents {_number_of(version)}")
    if (
        version == _ANY_V0_4
        and found
        and not validate(document, schema_of_kind("Agent-v0.5"), name="Open Standard Agents v0.4.7")
    ):
        return [replace(each, is_warning=True) for each in found]
    return found


def schema_name(version: object) -> str:
    """Return the name of the schema for a value of `apiVersion`: v0.5 for v0.4.7 and later, otherwise v0.4."""
    return "Agent-v0.5" if _is_v0_5(version) else "Agent"


def _is_v0_5(version: object) -> bool:
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if found is None:
        return False
    patch = found["patch"]
    return found[0].startswith("ossa/v0.5") or (patch is not None and int(patch) >= _FIRST_PATCH_OF_V0_5)


def _number_of(version: object) -> str:
    return "v0.5" if _is_v0_5(version) else "v0.4"

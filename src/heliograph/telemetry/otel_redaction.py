"""Redact spans before they are exported: those of libraries may quote the messages of exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, Status

from heliograph.redaction import is_clean, redacted, redacted_text


def without_secrets(span: ReadableSpan) -> ReadableSpan:
    """Return the span itself if it has no known secret; otherwise a copy with stars in their place."""
    if is_clean("\n".join(_texts(span))):  # one search for all texts
        return span
    status = span.status
    return ReadableSpan(
        redacted_text(span.name), span.context, span.parent, span.resource, _redacted(span.attributes),
        [Event(redacted_text(each.name), _redacted(each.attributes), each.timestamp) for each in span.events],
        [Link(each.context, _redacted(each.attributes)) for each in span.links], span.kind,
        status=Status(status.status_code, None if status.description is None else redacted_text(status.description)),
        start_time=span.start_time, end_time=span.end_time, instrumentation_scope=span.instrumentation_scope,
    )  # fmt: skip


def _redacted(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return redacted(dict(attributes or {}))  # type: ignore[no-any-return]  # a dict, like its argument


def _texts(span: ReadableSpan) -> list[str]:
    texts = [span.name, span.status.description or ""]
    texts += [each.name for each in span.events]
    inner = [*(each.attributes for each in span.events), *(each.attributes for each in span.links)]
    for attributes in (span.attributes, *inner):
        for key, value in (attributes or {}).items():
            texts.append(key)
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, tuple | list):
                texts += map(str, value)
    return texts

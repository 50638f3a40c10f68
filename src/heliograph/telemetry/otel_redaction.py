"""Redact spans before they are exported: those of libraries may quote the messages of exceptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, Status

from heliograph.redaction import is_clean, redacted, redacted_text


def without_secrets(span: ReadableSpan) -> ReadableSpan:
    """Return the span itself if it has no known secret; otherwise a copy with stars in their place."""
    if is_clean("\n".join(_texts(span))):
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


def _texts(span: ReadableSpan) -> Iterator[str]:
    yield span.name
    yield span.status.description or ""
    yield from (each.name for each in span.events)
    inner = [*(each.attributes for each in span.events), *(each.attributes for each in span.links)]
    for attributes in (span.attributes, *inner):
        yield from attributes or {}
        for value in (attributes or {}).values():
            yield from (
                (value,) if isinstance(value, str) else map(str, value) if isinstance(value, tuple | list) else ()
            )

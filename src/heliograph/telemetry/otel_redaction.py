"""Redact spans before they are exported: those of libraries may quote the messages of exceptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, Status

from heliograph.redaction import is_clean, redacted, redacted_text
from heliograph.telemetry.otel_recorded_span import RecordedSpan


def without_secrets(spans: Sequence[ReadableSpan]) -> Sequence[ReadableSpan]:
    """Return the spans themselves if they have no known secret; otherwise those with one as copies with stars in its place."""
    if is_clean("\n".join(text for span in spans for text in _texts(span))):  # one search for all texts
        return spans
    return [span if is_clean("\n".join(_texts(span))) else _copy(span) for span in spans]


def _copy(span: ReadableSpan) -> ReadableSpan:
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
    """All texts of a span. Those in a list have the spelling of `repr`, which is one of those that are searched."""
    if isinstance(span, RecordedSpan):  # the keys of its attributes are ours
        return [span.name, span.error or "", *map(str, span.values.values())]
    attributes = span.attributes or {}
    texts = [span.name, span.status.description or "", *attributes, *map(str, attributes.values())]
    for event in span.events:
        texts += event.name, str(event.attributes)
    return texts + [str(link.attributes) for link in span.links]

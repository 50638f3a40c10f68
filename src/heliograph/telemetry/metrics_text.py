"""Write metrics in the text format of Prometheus (version 0.0.4). Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from heliograph.redaction import redacted_text
from heliograph.telemetry.metrics import Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def text_of(families: Iterable[Family]) -> str:
    """Return the metrics as text, with known secrets redacted."""
    return redacted_text("".join(line + "\n" for family in families for line in _lines(family)))


def _lines(family: Family) -> Iterator[str]:
    metric, name, labels = family.metric, family.metric.text_name, family.metric.text_labels
    yield f"# HELP {name} {metric.help}"
    yield f"# TYPE {name} {metric.kind}"
    for values, value in family.values.items():
        yield f"{name}{_labels(labels, values)} {_number(value)}"
    for values, each in family.distributions.items():
        bounds = [*map(_number, metric.buckets), "+Inf"]
        for bound, count in zip(bounds, accumulate(each.counts), strict=True):
            yield f"{name}_bucket{_labels((*labels, 'le'), (*values, bound))} {count}"
        yield f"{name}_sum{_labels(labels, values)} {_number(each.total)}"
        yield f"{name}_count{_labels(labels, values)} {sum(each.counts)}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return f"{{{','.join(pairs)}}}"


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)

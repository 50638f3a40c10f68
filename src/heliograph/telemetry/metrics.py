"""Counters, gauges and histograms of one process. Pure.

One event loop records them, so recording needs no lock. Labels come from a fixed list, and the values of each label are bounded:
ids never become labels, and further values are counted as `other`.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

OTHER = "other"
VALUES_MAX = 100  # of one label
SERIES_MAX = 1000  # of one metric
_VALUE_LENGTH_MAX = 100

LABELS = frozenset({
    "signal_type", "signal", "subscription", "status", "error_code", "agent", "outcome", "project", "application", "pool", "state", "kind", "amount",
    "gen_ai.operation.name", "gen_ai.request.model", "gen_ai.token.type", "error.type",
})  # fmt: skip

Kind = Literal["counter", "gauge", "histogram"]
Series = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric. name, labels: as their specification spells them. buckets: the upper bounds of a histogram. unit: of OpenTelemetry.

    It is equal only to itself, because its hash is then quick, and each record looks it up.
    Raises ValueError for labels outside the list.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    unit: str = ""

    def __post_init__(self) -> None:
        if unknown := set(self.labels) - LABELS:
            raise ValueError(f"{self.name} has the labels {sorted(unknown)}, which are not in the list of labels")

    @property
    def text_name(self) -> str:
        """The name in the text format of Prometheus: without dots, and with the unit where OpenTelemetry appends it."""
        return self.name.replace(".", "_") + ("_seconds" if self.unit == "s" else "")

    @property
    def text_labels(self) -> tuple[str, ...]:
        """The labels in the text format of Prometheus."""
        return tuple(label.replace(".", "_") for label in self.labels)


@dataclass(slots=True)
class Distribution:
    """One series of a histogram: how many values each bucket has, the last one without an upper bound, and their sum."""

    counts: list[int]
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its series at one moment."""

    metric: Metric
    values: Series = field(default_factory=dict)
    distributions: Mapping[tuple[str, ...], Distribution] = field(default_factory=dict)


class Registry:
    """The metrics of a process. reserved: values of labels that never become `other`."""

    def __init__(self, reserved: Mapping[str, Iterable[str]] | None = None):
        self._known: dict[str, set[str]] = {label: set(values) for label, values in (reserved or {}).items()}
        self._values: dict[Metric, dict[tuple[str, ...], float]] = {}
        self._distributions: dict[Metric, dict[tuple[str, ...], Distribution]] = {}

    def reserve(self, label: str, values: Iterable[str]) -> None:
        """Keep these values of a label: they never become `other`."""
        self._known.setdefault(label, set()).update(value[:_VALUE_LENGTH_MAX] for value in values)

    def add(self, metric: Metric, *values: str, amount: float = 1.0) -> None:
        """Add to a counter. values: of its labels, in their order."""
        series = self._values.get(metric)
        if series is None:
            series = self._values[metric] = {}
        if values not in series:
            values = self._key(metric, values, series)
            series.setdefault(values, 0.0)
        series[values] += amount

    def observe(self, metric: Metric, value: float, *values: str) -> None:
        """Add a value to a histogram."""
        series = self._distributions.setdefault(metric, {})
        key = values if values in series else self._key(metric, values, series)
        if (found := series.get(key)) is None:
            found = series[key] = Distribution([0] * (len(metric.buckets) + 1))
        found.counts[bisect_left(metric.buckets, value)] += 1
        found.total += value

    def replace(self, metric: Metric, rows: Iterable[tuple[Sequence[str], float]],
                merge: Callable[[float, float], float] = operator.add) -> None:  # fmt: skip
        """Replace all series of a gauge. merge: of rows whose labels are the same after the bound, for example `max` for ages."""
        series: dict[tuple[str, ...], float] = {}
        for values, value in rows:
            key = self._key(metric, tuple(values), series)
            series[key] = merge(series[key], value) if key in series else value
        self._values[metric] = series

    def collect(self) -> list[Family]:
        """Return a copy of all metrics, in the order of their names."""
        families = [Family(metric, dict(series)) for metric, series in self._values.items()]
        families += [
            Family(metric, {}, {key: Distribution(list(each.counts), each.total) for key, each in series.items()})
            for metric, series in self._distributions.items()
        ]
        return sorted(families, key=lambda family: family.metric.name)

    def _key(
        self, metric: Metric, values: tuple[str, ...], series: Mapping[tuple[str, ...], object]
    ) -> tuple[str, ...]:
        """The key of a series: `values`, with those beyond the bounds replaced."""
        key = tuple(self._bounded(label, value) for label, value in zip(metric.labels, values, strict=True))
        return key if key in series or len(series) < SERIES_MAX else (OTHER,) * len(key)

    def _bounded(self, label: str, value: str) -> str:
        known = self._known.setdefault(label, set())
        value = value[:_VALUE_LENGTH_MAX]
        if value not in known:
            if len(known) >= VALUES_MAX:
                return OTHER
            known.add(value)
        return value

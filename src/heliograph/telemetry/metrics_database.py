"""The gauges of the database: queues, leases, outbox, circuit breakers and budgets of the projects of a worker."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from heliograph.telemetry.metrics import Metric, Registry
from heliograph.telemetry.metrics_names import (
    ALL_LEASES,
    BREAKERS,
    BUDGETS,
    DATABASE_UP,
    OUTBOX,
    OUTBOX_AGE,
    QUEUE,
    QUEUE_AGE,
)

# One statement for all projects; see the kernel's function `measure`.
STATEMENT = "select p, heliograph.measure(p, clock_timestamp()) from unnest($1::text[]) p"

Measured: TypeAlias = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]  # by project

# by metric: the part of a measurement, the keys of its labels after the project, and the key of its value
_PARTS: tuple[tuple[Metric, str, tuple[str, ...], str], ...] = (
    (QUEUE, "queues", ("application", "pool", "state"), "count"),
    (QUEUE_AGE, "queues", ("application", "pool", "state"), "seconds"),
    (ALL_LEASES, "leases", ("application", "state"), "count"),
    (OUTBOX, "outbox", ("kind",), "count"),
    (OUTBOX_AGE, "outbox", ("kind",), "seconds"),
    (BREAKERS, "breakers", ("type", "state"), "count"),
)
_AMOUNTS = ("maximum", "used", "reserved")


def record_database(registry: Registry, measured: Measured | None) -> None:
    """Replace the gauges of the database. measured: None if it could not be measured; old values would mislead then."""
    projects = {} if measured is None else measured
    for metric, part, keys, value in _PARTS:
        registry.replace(metric, [
            ((project, *(str(row[key]) for key in keys)), float(row[value]))
            for project, parts in projects.items() for row in parts[part]
        ], max if value == "seconds" else operator.add)  # fmt: skip
    registry.replace(BUDGETS, [
        ((project, str(row["kind"]), amount), float(row[amount]))
        for project, parts in projects.items() for row in parts["budgets"] for amount in _AMOUNTS
    ])  # fmt: skip
    registry.replace(DATABASE_UP, [((), float(measured is not None))])

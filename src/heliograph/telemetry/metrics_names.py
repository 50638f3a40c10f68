"""The metrics of Heliograph. Names of the specifications keep their spelling. Pure."""

from __future__ import annotations

from heliograph.telemetry.metrics import Metric
from heliograph.turn.phases import Phase

_SECOND, _MINUTE, _HOUR, _DAY = 1e3, 6e4, 3.6e6, 8.64e7
# From a tool call in the same process up to an approval that takes days.
MILLISECONDS = (
    1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, _SECOND, 2.5 * _SECOND, 5 * _SECOND, 10 * _SECOND, 30 * _SECOND, _MINUTE,
    5 * _MINUTE, 30 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY,
)  # fmt: skip

SIGNAL_LATENCY = Metric(
    "signal_latency_ms", "histogram", "Milliseconds from a control signal to its response", ("signal_type", "status"), MILLISECONDS, "ms"
)  # fmt: skip
SIGNAL_COUNT = Metric("signal_count", "counter", "Control signals and responses", ("signal_type", "status"))
SIGNAL_ERRORS = Metric("signal_errors", "counter", "Control signals that failed", ("signal_type", "error_code"))
SIGNALS = (SIGNAL_LATENCY, SIGNAL_COUNT, SIGNAL_ERRORS)

SIGNALS_TOTAL = Metric(
    "heliograph_signals_total",
    "counter",
    "Signals of subscriptions with the adapter Metrics",
    ("subscription", "signal"),
)

STARTED = {
    phase: Metric(f"agent.lifecycle.{phase}.started", "counter", f"Turns that began phase {phase}", ("agent",))
    for phase in Phase
}
DURATION = {
    phase: Metric(
        f"agent.lifecycle.{phase}.duration",
        "histogram",
        f"Milliseconds of phase {phase}",
        ("agent",),
        MILLISECONDS,
        "ms",
    )
    for phase in Phase
}
LIFECYCLE = (*STARTED.values(), *DURATION.values())

# The conventions of OpenTelemetry for GenAI, with the bounds of buckets that they recommend.
MODEL_DURATION = Metric(
    "gen_ai.client.operation.duration", "histogram", "Seconds of a model call",
    ("gen_ai.operation.name", "gen_ai.request.model", "error.type"), tuple(0.01 * 2**n for n in range(14)), "s",
)  # fmt: skip
MODEL_TOKENS = Metric(
    "gen_ai.client.token.usage", "histogram", "Tokens of a model call",
    ("gen_ai.operation.name", "gen_ai.request.model", "gen_ai.token.type"), tuple(4.0**n for n in range(14)), "{token}",
)  # fmt: skip
MODELS = (MODEL_DURATION, MODEL_TOKENS)

CLAIMED = Metric("heliograph_turns_claimed_total", "counter", "Claims of turns by this worker", ("agent",))
ENDED = Metric("heliograph_turns_ended_total", "counter", "Turns that this worker ended", ("agent", "outcome"))
SLOTS = Metric("heliograph_worker_slots", "gauge", "Turns that this worker runs at most at once")
SLOTS_USED = Metric("heliograph_worker_slots_used", "gauge", "Turns that this worker runs")
LEASES = Metric("heliograph_worker_leases", "gauge", "Leases of this worker", ("project",))
CLAIMING = Metric("heliograph_worker_claiming", "gauge", "1 while this worker claims turns")
UPTIME = Metric("heliograph_worker_uptime_seconds", "gauge", "Seconds since the listener of this worker started")
WORKER = (CLAIMED, ENDED, SLOTS, SLOTS_USED, LEASES, CLAIMING, UPTIME)

_WAITING = "at most 10000 of each state"
QUEUE = Metric(
    "heliograph_queue_turns",
    "gauge",
    f"Turns that wait to be claimed, {_WAITING}",
    ("project", "application", "pool", "state"),
)
QUEUE_AGE = Metric(
    "heliograph_queue_oldest_seconds", "gauge", "How long the oldest of these turns could have been claimed",
    ("project", "application", "pool", "state"),
)  # fmt: skip
ALL_LEASES = Metric("heliograph_leases", "gauge", "Leases of all workers", ("project", "application", "state"))
OUTBOX = Metric(
    "heliograph_outbox_messages",
    "gauge",
    "Messages that are not sent yet, at most 10000 of each kind",
    ("project", "kind"),
)
OUTBOX_AGE = Metric(
    "heliograph_outbox_oldest_seconds", "gauge", "How long the oldest of these messages is due", ("project", "kind")
)
BREAKERS = Metric(
    "heliograph_circuit_breakers", "gauge", "Circuit breakers, of the hundred that changed last", ("project", "kind", "state")
)  # fmt: skip
BUDGETS = Metric(
    "heliograph_budgets", "gauge", "Budgets of open turns: maximum, used and reserved", ("project", "kind", "amount")
)
DATABASE_UP = Metric("heliograph_database_up", "gauge", "1 if the last measurement of the database succeeded")
DATABASE = (QUEUE, QUEUE_AGE, ALL_LEASES, OUTBOX, OUTBOX_AGE, BREAKERS, BUDGETS, DATABASE_UP)

ALL = (*SIGNALS, SIGNALS_TOTAL, *LIFECYCLE, *MODELS, *WORKER, *DATABASE)

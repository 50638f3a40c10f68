"""A failure that repeats is logged once per outage, and again after pauses that grow."""

from __future__ import annotations

from heliograph.worker.outage_log import OutageLog


def test_failure_that_repeats_each_second_is_logged_with_growing_pauses() -> None:
    outages = OutageLog()
    assert [second for second in range(400) if outages.is_due("relay", float(second))] == [0, 30, 90, 210]


def test_failure_after_a_success_is_logged_at_once() -> None:
    outages = OutageLog()
    assert outages.is_due("relay", 0.0)
    assert not outages.is_due("relay", 1.0)
    outages.end("relay")
    assert outages.is_due("relay", 2.0)


def test_each_work_has_its_own_outage() -> None:
    outages = OutageLog()
    assert outages.is_due(("relay", "a"), 0.0)
    assert outages.is_due(("relay", "b"), 0.0)
    assert outages.is_due(("sweep", "a"), 0.0)

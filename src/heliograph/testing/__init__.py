"""The testing kit: what an application's own tests use. `docs/learn/testing.md` shows all of it."""

from __future__ import annotations

from heliograph.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers assume True; the pytest plugin imports this package in every project

if TYPE_CHECKING:
    from heliograph.testing.recorded_run import RecordedRun
    from heliograph.testing.served_application import ApplicationServer, ServedApplication, serve
    from heliograph.testing.signal_assertions import caused_by, contains, eventually, in_order, never
    from heliograph.testing.signal_match import SignalMatch, signal
    from heliograph.testing.simulation.crashes import CrashReport, crash_at, crash_at_every_await
    from heliograph.testing.simulation.simulated_tests import simulate, virtual_time
    from heliograph.testing.simulation.simulation import Simulation
    from heliograph.testing.stub_server import StubServer

__all__ = [
    "ApplicationServer",
    "CrashReport",
    "RecordedRun",
    "ServedApplication",
    "SignalMatch",
    "Simulation",
    "StubServer",
    "caused_by",
    "contains",
    "crash_at",
    "crash_at_every_await",
    "eventually",
    "in_order",
    "never",
    "serve",
    "signal",
    "simulate",
    "virtual_time",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "heliograph.testing.recorded_run": ("RecordedRun",),
            "heliograph.testing.served_application": ("ApplicationServer", "ServedApplication", "serve"),
            "heliograph.testing.signal_assertions": ("caused_by", "contains", "eventually", "in_order", "never"),
            "heliograph.testing.signal_match": ("SignalMatch", "signal"),
            "heliograph.testing.simulation.crashes": ("CrashReport", "crash_at", "crash_at_every_await"),
            "heliograph.testing.simulation.simulated_tests": ("simulate", "virtual_time"),
            "heliograph.testing.simulation.simulation": ("Simulation",),
            "heliograph.testing.stub_server": ("StubServer",),
        },
    )

"""The testing kit: what an application's own tests use. `docs/learn/testing.md` shows all of it."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers assume True; the pytest plugin imports this package in every project

if TYPE_CHECKING:
    from typing import Any

    from heliograph.testing.recorded_run import RecordedRun
    from heliograph.testing.served_application import ApplicationServer, ServedApplication, serve
    from heliograph.testing.signal_assertions import caused_by, contains, eventually, in_order, never
    from heliograph.testing.signal_match import SignalMatch, signal
    from heliograph.testing.simulation.crashes import CrashReport, crash_at, crash_at_every_await
    from heliograph.testing.simulation.simulated_tests import simulate, virtual_time
    from heliograph.testing.simulation.simulation import Simulation
    from heliograph.testing.stub_server import StubServer

# Loaded when first used, like the names of `heliograph`.
_WHERE = {
    "ApplicationServer": "served_application",
    "CrashReport": "simulation.crashes",
    "RecordedRun": "recorded_run",
    "ServedApplication": "served_application",
    "SignalMatch": "signal_match",
    "Simulation": "simulation.simulation",
    "StubServer": "stub_server",
    "caused_by": "signal_assertions",
    "contains": "signal_assertions",
    "crash_at": "simulation.crashes",
    "crash_at_every_await": "simulation.crashes",
    "eventually": "signal_assertions",
    "in_order": "signal_assertions",
    "never": "signal_assertions",
    "serve": "served_application",
    "signal": "signal_match",
    "simulate": "simulation.simulated_tests",
    "virtual_time": "simulation.simulated_tests",
}

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


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'heliograph.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"heliograph.testing.{_WHERE[name]}"), name)

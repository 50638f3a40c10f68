"""All checks of the black-box suite."""

from __future__ import annotations

from heliograph.testing.blackbox.check import Check
from heliograph.testing.blackbox.checks_control import CONTROL
from heliograph.testing.blackbox.checks_lifecycle import LIFECYCLE
from heliograph.testing.blackbox.checks_policies import POLICIES
from heliograph.testing.blackbox.checks_routes import ROUTES
from heliograph.testing.blackbox.checks_signals import SIGNALS
from heliograph.testing.blackbox.checks_turns import TURNS

CHECKS: tuple[Check, ...] = (*SIGNALS, *TURNS, *LIFECYCLE, *CONTROL, *ROUTES, *POLICIES)

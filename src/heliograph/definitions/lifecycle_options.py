"""The options of an agent from the maps `lifecycle` and `control_signals` of a runtime specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.control.lifecycle_settings import LifecycleSettings, read_lifecycle
from heliograph.control.settings import ControlSettings, read_settings
from heliograph.definitions.lifecycle import Lifecycle


def lifecycle_options(
    lifecycle: LifecycleSettings | Mapping[str, Any],
    control_signals: ControlSettings | Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the options of `app.agent` and `app.prompt_agent` for these settings: lifecycle, timeout_seconds and ttl_seconds.

    control_signals: its entry `error` has the policy for one code. Raises InvalidInput.
    """
    given = lifecycle if isinstance(lifecycle, LifecycleSettings) else read_lifecycle(lifecycle, "/lifecycle")
    signals = (
        control_signals
        if isinstance(control_signals, ControlSettings)
        else read_settings(control_signals or {}, "/control_signals")
    )
    phases, policies = given.phases, given.error_handling
    return {
        "timeout_seconds": phases.act.timeout_seconds,
        "ttl_seconds": given.total_timeout_seconds,
        "lifecycle": Lifecycle(
            init_timeout_seconds=phases.init.timeout_seconds,
            plan_timeout_seconds=phases.plan.timeout_seconds,
            reflect_timeout_seconds=phases.reflect.timeout_seconds,
            terminate_timeout_seconds=phases.terminate.timeout_seconds,
            terminate_force_seconds=phases.terminate.force_after_seconds,
            init_retries=phases.init.max_retries if phases.init.retry_on_failure else 0,
            error_retries=signals.error.retries,
            error_recoverable=signals.error.recoverable,
            max_iterations=given.max_iterations,
            on_max_iterations=given.on_max_iterations,
            on_timeout=policies.on_timeout,
            on_resource_exhausted=policies.on_resource_exhausted,
            on_tool_error=policies.on_tool_error,
            max_tool_retries=policies.max_tool_retries,
        ),
    }

"""The settings of an agent's phases: their limits, and the policies for errors, reached limits and failed tools."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from heliograph.codes import CODE_NAMES
from heliograph.definitions.agent_checks import SECONDS_MAX, check_number, check_one_of, raise_invalid
from heliograph.error_text import repr_of, safe_repr

HOOKS = ("init", "plan", "act", "reflect", "terminate")
AT_LIMIT = ("terminate", "deliver_best")
_TOOL_POLICIES = ("retry", "skip", "terminate")
OF_EVERY_AGENT = ("error_retries", "error_recoverable")  # the other settings are about hooks
OF_PLANS = ("on_tool_error", "max_tool_retries")  # of plans that the runtime executes
HOOK_OF = {
    "init_timeout_seconds": "init", "init_retries": "init", "plan_timeout_seconds": "plan", "reflect_timeout_seconds": "reflect",
    "max_iterations": "reflect", "on_max_iterations": "reflect", "terminate_timeout_seconds": "terminate",
    "terminate_force_seconds": "terminate",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """Limits and policies of the five phases.

    The act phase has the agent's `timeout_seconds`, and all phases together have its `ttl_seconds`; `max_steps` limits the
    model calls of one act phase. A phase's timeout bounds one run of its hook: time in which the turn waits does not count.

    init_retries: how often a failed init is repeated, with growing delays. error_retries: the same for every phase, by the
    code of the error, for example {"NETWORK_ERROR": 3}. error_recoverable: by the code, whether a retry may help, in place of the
    value of the error, for example {"TOOL_ERROR": True}. Both also apply to an agent without hooks, which has only the act phase;
    the other settings need hooks. terminate_force_seconds: the turn ends after that time even if
    the terminate hook ignores its cancellation.
    max_iterations: the rounds of plan, act and reflect. on_max_iterations: a turn that has not reached its goal by then
    fails ("fail"), or ends as partial with the last output ("deliver_best"). on_timeout, on_resource_exhausted:
    "terminate" fails the turn, "deliver_best" ends it as partial with the last output, if there is one.
    on_tool_error, max_tool_retries: for the steps of a plan. "retry" repeats a failed step, and fails the turn if all
    repetitions fail; "skip" continues with the next step; "terminate" fails the turn.
    """

    init_timeout_seconds: float = 30.0
    plan_timeout_seconds: float = 60.0
    reflect_timeout_seconds: float = 30.0
    terminate_timeout_seconds: float = 15.0
    terminate_force_seconds: float = 30.0
    init_retries: int = 3
    error_retries: Mapping[str, int] = field(default_factory=dict)
    error_recoverable: Mapping[str, bool] = field(default_factory=dict)
    max_iterations: int = 10
    on_max_iterations: Literal["fail", "deliver_best"] = "fail"
    on_timeout: Literal["terminate", "deliver_best"] = "terminate"
    on_resource_exhausted: Literal["terminate", "deliver_best"] = "terminate"
    on_tool_error: Literal["retry", "skip", "terminate"] = "retry"
    max_tool_retries: int = 3

    def timeout_seconds(self, phase: str, act_seconds: float) -> float:
        """The timeout of one run of a phase's hook."""
        return act_seconds if phase == "act" else float(getattr(self, f"{phase}_timeout_seconds"))


def check_lifecycle(name: str, given: Any, ttl_seconds: float, hooks: Collection[str]) -> Lifecycle:
    """Return the settings of an agent with these hooks. Raises InvalidInput."""
    given = Lifecycle() if given is None else given
    if not isinstance(given, Lifecycle):
        raise_invalid(name, "lifecycle", f"must be a Lifecycle, not {safe_repr(repr_of(given))}; write "
                      "lifecycle=Lifecycle(max_iterations=3), for example", "wrong_type")  # fmt: skip
    if not hooks:
        _check_has_effect(name, given)
    for phase in ("init", "plan", "reflect", "terminate"):
        argument = f"{phase}_timeout_seconds"
        check_number(name, f"lifecycle.{argument}", getattr(given, argument), 0.001, SECONDS_MAX)
    check_number(name, "lifecycle.terminate_force_seconds", given.terminate_force_seconds, 0.001, SECONDS_MAX)
    check_number(name, "lifecycle.init_retries", given.init_retries, 0, 1000, whole=True)
    check_number(name, "lifecycle.max_iterations", given.max_iterations, 1, 1000, whole=True)
    check_number(name, "lifecycle.max_tool_retries", given.max_tool_retries, 0, 100, whole=True)
    check_one_of(name, "lifecycle.on_max_iterations", given.on_max_iterations, ("fail", "deliver_best"))
    check_one_of(name, "lifecycle.on_timeout", given.on_timeout, AT_LIMIT)
    check_one_of(name, "lifecycle.on_resource_exhausted", given.on_resource_exhausted, AT_LIMIT)
    check_one_of(name, "lifecycle.on_tool_error", given.on_tool_error, _TOOL_POLICIES)
    for code, count in _by_code(name, "error_retries", given.error_retries, "numbers"):
        check_number(name, f"lifecycle.error_retries.{code}", count, 0, 1000, whole=True)
    for code, value in _by_code(name, "error_recoverable", given.error_recoverable, "True or False"):
        if not isinstance(value, bool):
            raise_invalid(name, f"lifecycle.error_recoverable.{code}", f"must be True or False, not {safe_repr(repr_of(value))}",
                          "wrong_type")  # fmt: skip
    kept = given.terminate_timeout_seconds
    if given.terminate_force_seconds < kept:
        raise_invalid(name, "lifecycle.terminate_force_seconds", f"must be at least terminate_timeout_seconds ({kept:g} s), not "
                      f"{given.terminate_force_seconds:g}: the hook is cancelled first, and abandoned later", "out_of_range")  # fmt: skip
    if "terminate" in hooks and ttl_seconds <= kept:
        raise_invalid(name, "ttl_seconds", f"must be above the {kept:g} s of the terminate hook, not {ttl_seconds:g}; raise it, or "
                      "lower lifecycle.terminate_timeout_seconds", "out_of_range")  # fmt: skip
    return given


def _check_has_effect(name: str, given: Lifecycle) -> None:
    """Raise InvalidInput (`no_effect`) for a setting that differs from its default and needs hooks."""
    for setting in _changed(given):
        if setting not in OF_EVERY_AGENT:
            raise_invalid(name, f"lifecycle.{setting}", "has no effect, because the agent has no hooks: remove the setting, or add the hook "
                          f"that it is about ({', '.join(hook for hook in HOOKS if hook != 'act')})", "no_effect")  # fmt: skip


def _changed(given: Lifecycle) -> list[str]:
    """The settings that differ from their defaults."""
    default = Lifecycle()
    return [each.name for each in fields(Lifecycle) if getattr(given, each.name) != getattr(default, each.name)]


def _by_code(name: str, option: str, given: Any, values: str) -> Iterator[tuple[str, Any]]:
    """Return the codes of a policy and their values. Raises InvalidInput for other keys."""
    if not isinstance(given, Mapping):
        raise_invalid(name, f"lifecycle.{option}", f"must map codes to {values}, not {safe_repr(given)}", "wrong_type")
    for code, value in given.items():
        if not isinstance(code, str):
            raise_invalid(name, f"lifecycle.{option}", f"must have codes as keys, not {safe_repr(code)}", "wrong_type")
        yield code, value


def warn_of_codes(name: str, lifecycle: Lifecycle) -> list[str]:
    """Warnings about codes of policies that resemble a code of the runtime. Other codes are those of tools."""
    warnings = []
    for option in OF_EVERY_AGENT:
        for code in getattr(lifecycle, option):
            similar = [] if code in CODE_NAMES else difflib.get_close_matches(code.upper(), CODE_NAMES, 1, cutoff=0.8)
            if similar:
                warnings.append(f"unknown_error_code: {option} of agent {name} has the code {safe_repr(code)}, which the runtime does "
                                f"not use; did you mean {similar[0]}?")  # fmt: skip
    return warnings


def warn_of_missing_hooks(name: str, lifecycle: Lifecycle, hooks: Collection[str], *, executes_plan: bool) -> list[str]:
    """Warnings about settings of hooks that an agent does not have. A specification may give settings for each phase."""
    missing = {setting: f"has no {hook} hook" for setting, hook in HOOK_OF.items() if hook not in hooks}
    if not executes_plan:
        missing |= dict.fromkeys(OF_PLANS, "has no plan that the runtime executes")
    return [f"setting_without_hook: lifecycle.{setting} of agent {name} has no effect, because the agent {missing[setting]}; remove the "
            "setting, or add the hook" for setting in _changed(lifecycle) if setting in missing]  # fmt: skip


def warn_of_lifetime(
    name: str, lifecycle: Lifecycle, hooks: Collection[str], act_seconds: float, ttl_seconds: float
) -> str | None:
    """A warning if all rounds together may take longer than the lifetime of the turn, which always wins."""
    iterates = "reflect" in hooks  # the sum of the specification: every phase, with or without a hook
    phases = HOOKS if iterates else ("act", *hooks)
    each = {phase: lifecycle.timeout_seconds(phase, act_seconds) for phase in phases}
    once = sum(each.pop(phase, 0.0) for phase in ("init", "terminate"))
    total = once + sum(each.values()) * (lifecycle.max_iterations if iterates else 1)
    if total <= ttl_seconds:
        return None
    return (f"phases_exceed_lifetime: the phases of agent {name} may take {total:g} s together, and its turns live {ttl_seconds:g} s "
            "(ttl_seconds); lower max_iterations or a timeout, or raise ttl_seconds")  # fmt: skip

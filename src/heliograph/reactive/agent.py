"""What an agent is, before it runs: when it wakes, what it may say, what it changes. Source: SIG-40 to SIG-46."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from heliograph.errors import InvalidInput, shown
from heliograph.signals.names import check_emit_name
from heliograph.signals.pattern import Pattern, check_agent_pattern

Effect = Literal["idempotent", "once"]
PRIORITIES = ("low", "normal", "high", "critical")

_NAME_MAX = 64
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One agent of a workflow.

    Exactly one of `run` (a function of one argument, the turn's context) and `prompt` (a template, or a function of
    the context that returns one) is set. `updates` names the state key that takes the output, or several keys of an
    output that is an object. `effect` says what a second run after a crash may do: `idempotent` agents are run again
    from the start, `once` agents are not: their turn ends as failed with code IN_DOUBT. `timeout_seconds` bounds one
    run, `ttl_seconds` the turn's whole life, queueing and recoveries included.
    """

    name: str
    activate_on: tuple[Pattern, ...]
    activate_when_all: tuple[Pattern, ...] = ()
    emits: tuple[str, ...] = ()
    when: Callable[..., bool] | None = None
    updates: tuple[str, ...] = ()
    updates_one: bool = True
    run: Callable[[Any], Any] | None = None
    prompt: str | Callable[[Any], str] | None = None
    model: Any = None
    output: Any = None
    system: str | None = None
    effect: Effect = "idempotent"
    priority: int = 1
    timeout_seconds: float = 300.0
    ttl_seconds: float = 3600.0
    max_attempts: int = 5
    version: str = "1"
    when_arity: int = field(default=1)

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        return self.activate_on + self.activate_when_all


def define_agent(
    name: str,
    *,
    run: Callable[[Any], Any] | None = None,
    prompt: str | Callable[[Any], str] | None = None,
    activate_on: Sequence[str] = (),
    activate_when_all: Sequence[str] = (),
    emits: Sequence[str] = (),
    when: Callable[..., bool] | None = None,
    updates: str | Sequence[str] = (),
    priority: str = "normal",
    effect: Effect = "idempotent",
    timeout_seconds: float = 300.0,
    ttl_seconds: float = 3600.0,
    max_attempts: int = 5,
    **model_options: Any,
) -> AgentSpec:
    """An agent from what its author wrote; everything is checked here, before anything runs.

    Raises InvalidInput naming the agent, the argument and the rule; Refused for a reserved signal name.
    """
    _check_name(name)
    for argument, value in (("activate_on", activate_on), ("activate_when_all", activate_when_all), ("emits", emits)):
        if isinstance(value, str):
            raise InvalidInput(
                f"agent {name}: {argument} takes a list, not one string; write [{value!r}]",
                code="wrong_type", path=f"/agents/{name}/{argument}",
            )  # fmt: skip
    if not activate_on and not activate_when_all:
        raise InvalidInput(
            f"agent {name} would never wake: give activate_on or activate_when_all, such as ['workflow:start']",
            code="required_field", path=f"/agents/{name}/activate_on",
        )  # fmt: skip
    if (run is None) == (prompt is None):
        raise InvalidInput(f"agent {name} needs either a function or a prompt, and not both", code="required_field",
                           path=f"/agents/{name}")  # fmt: skip
    if priority not in PRIORITIES:
        raise InvalidInput(f"agent {name}: priority is one of {', '.join(PRIORITIES)}, not {shown(priority)}",
                           code="invalid_enum", path=f"/agents/{name}/priority")  # fmt: skip
    if effect not in ("idempotent", "once"):
        raise InvalidInput(f"agent {name}: effect is 'idempotent' or 'once', not {shown(effect)}", code="invalid_enum",
                           path=f"/agents/{name}/effect")  # fmt: skip
    _check_number(name, "timeout_seconds", timeout_seconds, 0.001, 31_622_400)
    _check_number(name, "ttl_seconds", ttl_seconds, 0.001, 31_622_400)
    _check_number(name, "max_attempts", max_attempts, 1, 1000)
    return AgentSpec(
        name=name, run=run, prompt=prompt,
        activate_on=tuple(check_agent_pattern(p) for p in activate_on),
        activate_when_all=tuple(check_agent_pattern(p) for p in activate_when_all),
        emits=tuple(check_emit_name(e) for e in emits),
        when=when, when_arity=_arity(name, when),
        updates=(updates,) if isinstance(updates, str) else tuple(updates), updates_one=isinstance(updates, str),
        priority=PRIORITIES.index(priority), effect=effect, timeout_seconds=float(timeout_seconds),
        ttl_seconds=float(ttl_seconds), max_attempts=int(max_attempts), **model_options,
    )  # fmt: skip


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name or len(name) > _NAME_MAX or not _NAME_CHARACTERS.issuperset(name):
        raise InvalidInput(
            f"an agent's name is 1 to {_NAME_MAX} ASCII letters, digits, '_' or '-', not {shown(name)}",
            code="invalid_identifier", path="/agents",
        )  # fmt: skip


def _check_number(name: str, argument: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidInput(f"agent {name}: {argument} is a number from {low} to {high}, not {shown(value)}",
                           code="out_of_range", path=f"/agents/{name}/{argument}")  # fmt: skip


def _arity(name: str, when: Callable[..., bool] | None) -> int:
    """1 for a guard of the state, 2 for a guard of the state and the signal."""
    if when is None:
        return 1
    if inspect.iscoroutinefunction(when):
        raise InvalidInput(f"agent {name}: when is a plain function: a guard decides, it waits for nothing",
                           code="wrong_type", path=f"/agents/{name}/when")  # fmt: skip
    try:
        count = len(inspect.signature(when).parameters)
    except ValueError:  # a builtin such as bool tells nothing
        return 1
    if count not in (1, 2):
        raise InvalidInput(f"agent {name}: when takes the state, or the state and the signal, not {count} arguments",
                           code="wrong_type", path=f"/agents/{name}/when")  # fmt: skip
    return count

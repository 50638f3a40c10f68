"""The arguments of `Context.delegates` and `Context.map`: delegations, how many run at once, and how often failed children run again."""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.policy.retry import RetryPolicy
from heliograph.reactive.run_memory import counted_activations
from heliograph.reactive.workflow import Workflow
from heliograph.records import RunView
from heliograph.turn.described_calls import Delegation

RETRIES_MAX = 100


def check_delegations(delegations: Sequence[Delegation]) -> None:
    """Check that these are delegations. Raises InvalidInput (`wrong_type`)."""
    for delegation in delegations:
        if not isinstance(delegation, Delegation):
            raise InvalidInput(
                f"the argument of delegates must be a list of Delegation, not {safe_repr(delegation)}",
                code="wrong_type",
            )


def check_limit(limit: int | None, timeout: float | None = None) -> None:
    """Check the number of children that run at once. Raises InvalidInput (`out_of_range`, `wrong_type`)."""
    if limit is None:
        return
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidInput(
            f"limit must be a number of children from 1, not {safe_repr(limit)}", code="out_of_range", path="/limit"
        )
    if timeout is not None:
        raise InvalidInput("with a limit, children start one after another, so they have no common timeout; give each Delegation its own",
                           code="wrong_type", path="/timeout")  # fmt: skip


def check_room(action: str, count: int, run: RunView, workflow: Workflow) -> None:
    """Check that a run may have so many turns more; otherwise it would fail after some of them. Raises InvalidInput (`out_of_range`)."""
    room = workflow.max_activations - counted_activations(run)
    if count > room:
        raise InvalidInput(f"ctx.{action} has {count} children, and the run may have {max(room, 0)} turns more: raise max_activations="
                           f"{workflow.max_activations} of Heliograph({workflow.name!r}), or give each child several items",
                           code="out_of_range", path="/max_activations")  # fmt: skip


def shared_policy(retries: int, policy: RetryPolicy | None) -> RetryPolicy | None:
    """The policy of children without their own; a number alone retries every failure. Raises InvalidInput (`out_of_range`)."""
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= RETRIES_MAX:
        raise InvalidInput(f"retries must be from 0 to {RETRIES_MAX}, not {safe_repr(retries)}", code="out_of_range")
    if retries == 0:
        return policy
    return RetryPolicy(retries + 1, retryable_errors="any") if policy is None else policy.at_most(retries)

"""The arithmetic of retries, the two shapes of its settings, and the decision to make a call again."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import heliograph
from heliograph.definitions.agent import define_agent
from heliograph.definitions.model_settings import check_model_settings, policy_of_model
from heliograph.definitions.signal_settings import read_application_settings
from heliograph.definitions.tool import Tool, tool
from heliograph.errors import HarnessError, InvalidInput
from heliograph.policy.callbacks import UNTRIED_SECONDS_MAX, again_seconds
from heliograph.policy.retry import RETRYABLE_ERRORS, RetryPolicy, jitter_of, narrowest, retry_policy
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.turn.decisions import deferral_after
from heliograph.turn.retries import delay_of, delays_of, final_result, next_attempt, pause_before

KEYS = st.text(max_size=40)
SECONDS = st.floats(0.001, 1000)


def policy(value: Any) -> RetryPolicy:
    found = retry_policy(value, "/retry")
    assert found is not None
    return found


# ── Delays ──


@pytest.mark.proves("RET-02", "G-06")
@given(st.integers(1, 60), SECONDS, st.floats(1, 10))
def test_each_strategy_has_its_formula(retry: int, first: float, factor: float) -> None:
    def delay(strategy: Any) -> float:
        return RetryPolicy(1001, strategy, first, 31_622_400, factor, jitter=False).delay_seconds(retry, "c1")

    assert delay("constant") == first
    assert delay("linear") == min(first * retry, 31_622_400)
    assert delay("exponential") == min(first * factor ** (retry - 1), 31_622_400)


@pytest.mark.proves("RET-06", "G-06")
@given(st.sampled_from(["constant", "linear", "exponential"]), st.integers(1, 1000), SECONDS, SECONDS, KEYS)
def test_jitter_takes_a_part_of_the_whole_delay_and_the_cap_follows(
    strategy: Any, retry: int, first: float, longest: float, key: str
) -> None:
    whole = RetryPolicy(1001, strategy, first, 31_622_400, jitter=False).delay_seconds(retry, key)
    delay = RetryPolicy(1001, strategy, first, longest).delay_seconds(retry, key)
    if whole < 31_622_400:
        assert delay == min(
            whole * jitter_of(key, retry), longest
        )  # a cap before the jitter would give a smaller delay
    assert 0 <= delay <= longest
    assert delay == RetryPolicy(1001, strategy, first, longest).delay_seconds(retry, key)  # a replay waits equally long


@pytest.mark.proves("RET-05")
def test_exponential_delays_double_up_to_thirty_seconds() -> None:
    plain = RetryPolicy(jitter=False)
    assert [plain.delay_seconds(n, "c1") for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
    assert plain.delay_seconds(100_000, "c1") == 30


@pytest.mark.proves("RET-06")
def test_calls_that_failed_together_do_not_retry_together() -> None:
    assert len({round(RetryPolicy().delay_seconds(1, f"turn_{n}"), 2) for n in range(100)}) > 50
    assert len({RetryPolicy(jitter=False).delay_seconds(1, f"turn_{n}") for n in range(100)}) == 1


def test_required_delay_of_the_other_side_replaces_a_shorter_one() -> None:
    assert RetryPolicy(jitter=False).delay_seconds(1, "c1", 90.0) == 90


@pytest.mark.parametrize("required", [1e300, float("inf"), 10**400])
def test_required_delay_is_at_most_a_year(required: float) -> None:
    assert RetryPolicy(jitter=False).delay_seconds(1, "c1", required) == 31_622_400


@pytest.mark.parametrize(
    ("given", "kept"), [(-1.0, 0), (float("nan"), 0), (float("inf"), 31_622_400), (1e300, 31_622_400), (2.5, 2.5)]
)
def test_delay_that_a_provider_requires_is_a_number_that_can_be_stored(given: float, kept: float) -> None:
    assert HarnessError("busy", retry_after_seconds=given).retry_after_seconds == kept
    assert RetryPolicy(jitter=False).delay_seconds(3, "c1", 0.5) == 4


@given(KEYS, st.integers(1, 11))
def test_webhooks_wait_at_least_half_of_a_quadrupled_delay(key: str, attempt: int) -> None:
    delay = again_seconds(key, attempt)
    whole = 5 * 4.0 ** (attempt - 1)
    assert delay == min(whole * (0.5 + jitter_of(key, attempt) / 2), 6 * 3600)
    assert again_seconds(key, 12) is None
    assert again_seconds(key, 1, 10**9) == 6 * 3600
    assert sum(min(5 * 4.0 ** (n - 1), 21_600) for n in range(1, 12)) == UNTRIED_SECONDS_MAX


@pytest.mark.more  # reads all files
def test_no_other_module_computes_delays_that_grow() -> None:
    """No other power with an unknown exponent, and no other name that is multiplied by a number and assigned to itself."""
    root = Path(heliograph.__file__).parent
    found = {
        f"{path.relative_to(root)}: {ast.unparse(node)}"
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if _grows(node)
    }
    # beside the policy: buckets of histograms, a number of turns, the rate limit of rings, a number of parts, limits of numbers, the speed of a player, and the estimate of a log's size
    assert found == {
        "policy/retry.py: self.factor ** (retry - 1)",
        "playback/checkpoints.py: self._scale = max(1.0, self._scale * len(raw) / expected)",
        "cli/play_screen.py: self.player.speed = min(SPEED_MAX, max(SPEED_MIN, self.player.speed * factor))",
        "world/ring_limit.py: self._interval_seconds = min(self._longest_seconds, 2 * self._interval_seconds)",
        "worker/claim_loop.py: self._claim_max[services.project] = min(_CLAIM_MAX, 2 * self._claim_max[services.project])",
        "telemetry/metrics_names.py: 2 ** n",
        "telemetry/metrics_names.py: 4.0 ** n",
        "testing/simulator/shrink.py: parts = min(len(items), parts * 2)",
        "signals/payload.py: 10 ** DIGITS_MAX",
        "testing/kernel/jsonb.py: 2 ** (bits - 1)",
    }


def _grows(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=ast.Pow(), right=right):
            return not isinstance(right, ast.Constant)
        case ast.AugAssign(op=ast.Mult() | ast.Pow()):
            return True
        case ast.Assign(targets=targets, value=value):
            names = {ast.unparse(each) for target in targets for each in ast.walk(target) if isinstance(each, ast.expr)}
            products = (
                each for each in ast.walk(value) if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult)
            )
            return any(ast.unparse(side) in names for each in products for side in (each.left, each.right))
    return False


# ── Settings ──


@pytest.mark.proves("RET-01", "RET-03", "RET-04", "RET-05", "RET-06", "RET-07")
def test_empty_settings_are_those_of_the_specification() -> None:
    found = policy({})
    assert (found.enabled, found.max_attempts, found.strategy, found.jitter) == (True, 3, "exponential", True)
    assert (found.initial_delay_seconds, found.max_delay_seconds) == (1, 30)
    assert found.retryable_errors is None
    of_spec = {"TOOL_TIMEOUT", "NETWORK_ERROR", "RATE_LIMITED"}
    assert set(RETRYABLE_ERRORS) == of_spec | {"DELEGATION_TIMEOUT", "MODEL_TIMEOUT"}
    assert all(found.allows(code) for code in RETRYABLE_ERRORS)
    assert not found.allows("TOOL_ERROR")
    assert found == RetryPolicy()


@pytest.mark.proves("RET-01")
def test_disabled_policy_allows_only_the_first_attempt() -> None:
    assert policy({"enabled": False, "max_attempts": 9}).retries == 0
    assert narrowest(policy({"enabled": False}), RetryPolicy()) is None  # the narrowest setting wins, also this one
    assert narrowest(None, RetryPolicy()) == RetryPolicy()


@pytest.mark.parametrize("field", ["jitter", "enabled"])
def test_switch_of_a_policy_that_is_no_boolean_is_rejected(field: str) -> None:
    given: Any = {field: "false"}
    with pytest.raises(InvalidInput, match=f"{field} of a retry policy must be true or false, not 'false'"):
        RetryPolicy(**given)


@pytest.mark.proves("G-05")
@given(st.integers(1, 30_000), st.floats(1, 10))
def test_backoff_keys_are_an_alias_of_an_exponential_policy(first: int, factor: float) -> None:
    alias = policy({"backoff_ms": first, "backoff_multiplier": factor})
    assert alias == RetryPolicy(initial_delay_seconds=first / 1000, factor=factor)
    canonical = {"strategy": "exponential", "initial_delay_ms": first, "jitter": True}
    assert policy({"backoff_ms": first}) == policy(canonical)  # the factor is 2


@pytest.mark.proves("G-07")
@given(st.integers(1, 100), st.integers(0, 100))
def test_retries_follow_the_first_attempt_and_the_smaller_limit_counts(attempts: int, retries: int) -> None:
    assert policy({"max_retries": retries}).max_attempts == retries + 1
    assert policy({"max_attempts": attempts, "max_retries": retries}).max_attempts == min(attempts, retries + 1)
    assert RetryPolicy(attempts).at_most(retries).retries == min(attempts - 1, retries)

    @tool(effect="pure", retries=min(retries, 100), retry={"max_attempts": attempts})
    def look() -> None: ...

    assert look.retry_policy is not None
    assert look.retry_policy.retries == (min(attempts - 1, retries) if retries else attempts - 1)
    agent = define_agent("a", prompt="Do.", on_request=True, retries=retries, retry={"max_attempts": attempts})
    assert agent.retries == min(attempts - 1, retries)


@pytest.mark.proves("G-05")
@pytest.mark.parametrize(
    ("value", "code", "path"),
    [
        ({"backoff_ms": 5, "strategy": "linear"}, "two_retry_shapes", "/retry/strategy"),
        ({"backoff_multiplier": 5, "jitter": False}, "two_retry_shapes", "/retry/jitter"),
        ({"strategy": "fibonacci"}, "invalid_enum", "/retry/strategy"),
        ({"max_attempts": 0}, "out_of_range", "/retry/max_attempts"),
        ({"max_attempts": 2000}, "out_of_range", "/retry/max_attempts"),
        ({"max_retries": -1}, "out_of_range", "/retry/max_retries"),
        ({"max_retries": 2000}, "out_of_range", "/retry/max_retries"),
        ({"backoff_ms": 1e12}, "out_of_range", "/retry/backoff_ms"),
        ({"initial_delay_ms": 1e12}, "out_of_range", "/retry/initial_delay_ms"),
        ({"max_delay_ms": 0.5}, "out_of_range", "/retry/max_delay_ms"),
        ({"backoff_multiplier": 2000}, "out_of_range", "/retry/backoff_multiplier"),
        ({"retryable_errors": "NETWORK_ERROR"}, "wrong_type", "/retry/retryable_errors"),
        ({"delay": 5}, "unknown_field", "/retry/delay"),
        (3, "wrong_type", "/retry"),
    ],
)
def test_invalid_settings_are_errors_with_a_pointer(value: Any, code: str, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        retry_policy(value, "/retry")
    assert (caught.value.code, caught.value.path) == (code, path)


@pytest.mark.proves("RET-08")
def test_settings_nest_by_signal_type_and_others_are_rejected() -> None:
    found = read_application_settings(
        {"tool_call": {"retry": {"max_attempts": 5}}, "delegation": {"retry": {"backoff_ms": 9}}}
    ).calls
    assert (found.tool_call.retry, found.delegation.retry) == (RetryPolicy(5), RetryPolicy(initial_delay_seconds=0.009))
    agent = define_agent(
        "a", run=print, on_request=True, control_signals={"delegation": {"retry": {"max_attempts": 7}}}
    )
    assert (agent.signal_settings.tool_call.retry, agent.signal_settings.delegation.retry) == (None, RetryPolicy(7))
    for value, path in (({"tool_call": {"retry": {"max_attempts": 0}}}, "/control_signals/tool_call/retry/max_attempts"),
                        ({"tool_call": {"retry": {"max_attempts": 2000}}}, "/control_signals/tool_call/retry/max_attempts"),
                        ({"tool_call": {"payload": {}}}, "/control_signals/tool_call/payload"),
                        ({"halt": {"retry": {}}}, "/control_signals/halt/retry"), ({"tool": {}}, "/control_signals/tool")):  # fmt: skip
        with pytest.raises(InvalidInput) as caught:
            heliograph.Heliograph("bad", control_signals=value)
        assert caught.value.path == path


def test_policies_of_models_match_names_in_order() -> None:
    found = check_model_settings({"anthropic:*": {"retry": {"max_attempts": 5}}, "*": {"retry": {"max_attempts": 1}}})
    assert policy_of_model(found, "anthropic:claude") == RetryPolicy(5)
    assert policy_of_model(found, "other") == RetryPolicy(1)
    assert policy_of_model(check_model_settings({"a": {"retry": {}}}), "b") is None
    for value, path in (({"a": {}}, "/models/a"), ({"a b": {"retry": {}}}, "/models/a b"), ([], "/models"),
                        ({"a/b": {"retry": {"max_attempts": 0}}}, "/models/a~1b/retry/max_attempts")):  # fmt: skip
        with pytest.raises(InvalidInput) as caught:
            check_model_settings(value)  # type: ignore[arg-type]
        assert caught.value.path == path


@pytest.mark.parametrize(
    ("retry", "is_repeated"),
    [
        (None, True),
        ({"initial_delay_ms": 5}, True),
        (RetryPolicy(5), True),
        ({"retryable_errors": None}, True),
        (RetryPolicy(retryable_errors=("NETWORK_ERROR",)), False),
        (RetryPolicy(retryable_errors=RETRYABLE_ERRORS), False),  # named, as in any other order
        (RetryPolicy(retryable_errors=RETRYABLE_ERRORS[::-1]), False),
        ({"retryable_errors": list(RETRYABLE_ERRORS)}, False),
        ({"enabled": False}, False),
    ],
)
def test_policy_without_codes_repeats_model_calls_after_each_recoverable_error(retry: Any, is_repeated: bool) -> None:
    claimed: Any = SimpleNamespace(defer_count=0, turn_id="turn_1")
    spec = define_agent("writer", prompt="Write.", retry=retry)
    deferred = deferral_after(HarnessError("status 503", recoverable=True), claimed, spec, 0)
    assert (deferred is not None) is is_repeated
    assert deferral_after(HarnessError("status 400"), claimed, spec, 0) is None


def test_retries_of_a_tool_that_may_not_be_repeated_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="cannot have retries"):
        tool(retries=1)(print)
    assert isinstance(tool(retry={"max_attempts": 2})(print), Tool)  # its errors are certain failures


# ── Decisions ──

REQUEST = CallRequest("c3", "s3", "fetch", "tool", effect="idempotent", retry=RetryPolicy(jitter=False))


def failed(code: str, status: Any = "failed", **error: Any) -> CallResult:
    return CallResult("c3", status, None, {"code": code, **error})


def decided(result: CallResult, **changes: Any) -> float | None:
    return delay_of(replace(REQUEST, **changes), result, "turn_1")


@pytest.mark.proves("RET-07")
@given(st.sampled_from([*RETRYABLE_ERRORS, "TOOL_ERROR", "AUTH_ERROR", "result_schema", "BUDGET_EXCEEDED", "mine"]))
def test_only_listed_codes_are_retried(code: str) -> None:
    assert (decided(failed(code, recoverable=True)) is not None) == (code in RETRYABLE_ERRORS)
    mine = RetryPolicy(retryable_errors=("mine",))
    assert (decided(failed(code), retry=mine) is not None) == (code == "mine")
    assert (decided(failed(code), retry=RetryPolicy(retryable_errors="any")) is None) == (code == "BUDGET_EXCEEDED")


def test_recoverable_errors_are_those_that_do_not_exclude_it() -> None:
    retry = RetryPolicy(retryable_errors="recoverable")
    assert decided(failed("mine"), retry=retry) is not None
    assert decided(failed("NETWORK_ERROR", recoverable=False), retry=retry) is None


def test_attempts_end_with_the_policy() -> None:
    error = failed("NETWORK_ERROR")
    assert [decided(error, attempt=n) for n in (1, 2, 3)] == [1, 2, None]
    assert decided(error, retry=None) is None


def test_call_whose_effect_may_have_happened_is_not_retried() -> None:
    late = failed("TOOL_TIMEOUT", "timeout")
    assert decided(late) == 1
    assert decided(late, effect="once") is None
    assert decided(late, has_shared_deadline=True) is None
    assert decided(failed("NETWORK_ERROR", "unknown"), retry=RetryPolicy(retryable_errors="any")) is None
    assert decided(failed("NETWORK_ERROR"), effect="once") == 1  # it certainly failed


def test_delay_in_the_details_of_an_error_is_respected() -> None:
    assert decided(failed("RATE_LIMITED", details={"retry_after_ms": 7000})) == 7
    assert decided(failed("RATE_LIMITED", details={"retry_after_ms": "soon"})) == 1


def test_canceled_call_is_made_again_with_the_call_that_failed_first() -> None:
    first, second = replace(REQUEST, fails_fast=True), replace(REQUEST, call_id="c4", fails_fast=True)
    canceled = CallResult("c4", "canceled", None, {"code": "CANCELED", "first_failed_call": "c3"})
    assert delays_of([(second, canceled), (first, failed("NETWORK_ERROR"))], "turn_1") == {0: 1, 1: 1}
    assert delays_of([(second, canceled), (first, failed("AUTH_ERROR"))], "turn_1") == {}
    assert delays_of([(second, failed("AUTH_ERROR")), (first, failed("NETWORK_ERROR"))], "turn_1") == {}


def test_attempts_and_pauses_have_ids_of_their_own() -> None:
    child = CallRequest("c3", "s3", "child", "child", instance="turn_1-c3", retry=RetryPolicy())
    second = next_attempt(child, "turn_1")
    third = next_attempt(second, "turn_1")
    assert [(r.call_id, r.step_id, r.instance, r.attempt) for r in (second, third)] == [
        ("c3-again-1", "s3-again-1", "turn_1-c3-again-1", 2), ("c3-again-2", "s3-again-2", "turn_1-c3-again-2", 3),
    ]  # fmt: skip
    pause = pause_before(third, 0.0)
    assert (pause.call_id, pause.step_id, pause.kind, pause.timeout_seconds) == (
        "c3-pause-2",
        "s3-pause-2",
        "timer",
        0.001,
    )


def test_error_of_the_last_attempt_counts_the_retries() -> None:
    third = next_attempt(next_attempt(REQUEST, "turn_1"), "turn_1")
    result = final_result(third, failed("TOOL_ERROR", details={"tool": "fetch", "exit_code": 1}))
    assert result.error is not None
    assert result.error["details"] == {"tool": "fetch", "exit_code": 1, "retry_count": 2, "max_retries": 2}

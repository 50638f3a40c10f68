from hypothesis import given
from hypothesis import strategies as st

from heliograph.policy.retry import DELAY_SECONDS_MAX, backoff_seconds, jitter_of


@given(st.integers(1, 1000), st.floats(0, 1))
def test_delay_is_a_part_of_the_doubled_delay_and_never_exceeds_the_cap(attempt: int, jitter: float) -> None:
    delay = backoff_seconds(attempt, jitter)
    assert 0 <= delay <= DELAY_SECONDS_MAX
    assert delay == min(2.0 ** (attempt - 1) * jitter, DELAY_SECONDS_MAX)


def test_delays_double_up_to_the_cap() -> None:
    assert [backoff_seconds(n, 1.0) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]


@given(st.text(max_size=40), st.integers(1, 9))
def test_jitter_of_an_attempt_is_deterministic(key: str, attempt: int) -> None:
    assert 0 <= jitter_of(key, attempt) < 1
    assert jitter_of(key, attempt) == jitter_of(key, attempt)


def test_turns_that_failed_together_do_not_retry_together() -> None:
    jitters = {round(jitter_of(f"turn_{n}", 1), 2) for n in range(100)}
    assert len(jitters) > 50

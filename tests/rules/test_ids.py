from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.ids import KEY_MAX, idempotency_key, make_id, signal_id, split_signal_id

MOMENTS = st.integers(10**5, 2**45 - 3).map(lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms))
ENTROPY = st.integers(0, 2**60 - 1).map(lambda number: (number << 4).to_bytes(8, "big"))


@given(MOMENTS, ENTROPY)
def test_id_has_its_kind_and_21_characters_without_look_alikes(at: datetime, entropy: bytes) -> None:
    kind, _, body = make_id("turn", at, entropy).partition("_")
    assert kind == "turn"
    assert len(body) == 21
    assert not set(body) - set("0123456789abcdefghjkmnpqrstvwxyz")


@given(MOMENTS, ENTROPY, ENTROPY)
def test_ids_sort_by_time_for_any_entropy(at: datetime, one: bytes, other: bytes) -> None:
    assert make_id("turn", at, one) < make_id("turn", at + timedelta(milliseconds=2), other)


@given(MOMENTS, ENTROPY, ENTROPY)
def test_ids_of_one_moment_differ_exactly_when_their_entropy_does(at: datetime, one: bytes, other: bytes) -> None:
    assert (make_id("run", at, one) == make_id("run", at, other)) == (one == other)


def test_ids_of_earlier_versions_sort_before_those_of_today() -> None:
    assert make_id("run", datetime(2026, 1, 1, tzinfo=UTC), bytes(8)) > "run_01m8enk4gmgb92s4njc6g0960j"


@pytest.mark.proves("SIG-10")
@given(st.from_regex(r"(run_)?[A-Za-z0-9_-]{1,40}", fullmatch=True), st.integers(1, 10**12))
def test_signal_id_splits_into_its_run_and_position(run_id: str, seq: int) -> None:
    made = signal_id(run_id, seq)
    assert made.startswith("sig_")
    assert split_signal_id(made) == (run_id, seq)


@pytest.mark.parametrize("text", ["", "sig_", "sig_a", "sig_a_", "sig_a_x", "sig_a_-1", "sig_a_٣", "msg_a_1", "a_1"])
def test_text_that_is_no_signal_id_splits_into_nothing(text: str) -> None:
    assert split_signal_id(text) is None


PARTS = st.lists(st.text("ab/%", max_size=300), min_size=2, max_size=4)


@pytest.mark.proves("S27")
@given(PARTS, PARTS)
def test_idempotency_keys_are_equal_only_where_every_part_is_equal(one: list[str], other: list[str]) -> None:
    keys = [idempotency_key(*parts) for parts in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)
    assert max(map(len, keys)) <= KEY_MAX


@pytest.mark.proves("S27")
def test_idempotency_key_names_project_application_turn_and_call() -> None:
    assert idempotency_key("shop", "orders", "turn_1", "m1-2") == "shop/orders/turn_1/m1-2"
    long = idempotency_key("shop", "orders", "t" * 200, "c" * 64)
    assert long.startswith("shop/orders/ttt")
    assert len(long) == KEY_MAX
    assert long != idempotency_key("shop", "orders", "t" * 200, "d" * 64)

import pytest

from heliograph.turn.call_id import CallId, instance_of, retry_id


@pytest.mark.parametrize(
    ("text", "call_id"),
    [
        ("m2", CallId(2)),
        ("m2-try3", CallId(2, 0, "-try3")),
        ("m12-4", CallId(12, 4)),
        ("m2-1-approval", CallId(2, 1, "-approval")),
        ("m2-1-approval-2", CallId(2, 1, "-approval-2")),
        ("m2-1-doubt", CallId(2, 1, "-doubt")),
        ("m2-1-again2", CallId(2, 1, "-again2")),
    ],
)
def test_id_of_the_agent_loop_round_trips_through_its_parts(text: str, call_id: CallId) -> None:
    assert CallId.parse(text) == call_id
    assert str(call_id) == text
    assert call_id.is_model_call == (call_id.tool_call == 0)


@pytest.mark.parametrize("text", ["c1", "chain_2-c1", "mine", "m", "m2-", "m2-try", "m2-1-try2", "m2-approval", "xm2"])
def test_id_of_a_function_is_not_an_id_of_the_agent_loop(text: str) -> None:
    assert CallId.parse(text) is None


def test_follow_ups_of_a_call_are_numbered_from_the_second_on() -> None:
    call, model_call = CallId(2, 1), CallId(2)
    assert [call.approval(), call.approval(2)] == ["m2-1-approval", "m2-1-approval-2"]
    assert [call.doubt(1), call.doubt(2)] == ["m2-1-doubt", "m2-1-doubt2"]
    assert [call.again(1), call.again(2)] == ["m2-1-again", "m2-1-again2"]
    assert [model_call.attempt(1), model_call.attempt(2)] == ["m2", "m2-try2"]
    assert retry_id("c3", 1) == "c3-again-1"


def test_instance_of_a_child_keeps_the_end_of_a_long_turn_id() -> None:
    assert instance_of("turn_1", "c1") == "turn_1-c1"
    assert instance_of("t" * 500 + "x", "c1").endswith("x-c1")
    assert len(instance_of("t" * 500, "c1")) == 160

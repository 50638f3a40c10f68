"""A recorded conversation reads back unchanged and yields the same text at every resumption."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client.messages import message_payload
from heliograph.errors import InvalidInput
from heliograph.ports import FileReference, ModelReply, ModelRequest, ToolCall, ToolMessage, UserMessage
from heliograph.turn.conversation import record_of, reply_of
from heliograph.turn.earlier_turns import files_of_message
from heliograph.turn.token_estimate import input_tokens_max
from heliograph.turn.untrusted import readable_text, system_of
from heliograph.types import Json

REPLIES = st.builds(
    ModelReply,
    text=st.text(),
    output=st.none() | st.integers(),
    thinking=st.text(),
    input_tokens=st.integers(0, 10),
    output_tokens=st.integers(0, 10),
    tool_calls=st.just(()) | st.just((ToolCall("a", "add", {"x": 1}),)),
    cost_usd=st.none() | st.just(0.5),
    raw=st.none() | st.just({"any": "thing"}),
    is_cut=st.booleans(),
)


@pytest.mark.proves("L0-100")
@given(REPLIES)
def test_model_reply_reads_back_as_it_was_recorded(reply: ModelReply) -> None:
    assert reply_of(json.loads(json.dumps(record_of(reply)))) == reply


@pytest.mark.proves("L0-100")
@pytest.mark.parametrize("is_untrusted", [False, True])
def test_text_of_a_result_does_not_depend_on_the_order_of_its_keys(is_untrusted: bool) -> None:
    made: Json = {"b": 1, "a": {"y": 2, "x": 3}}
    read_back: Json = {"a": {"x": 3, "y": 2}, "b": 1}
    texts = [readable_text(ToolMessage("a", "find", found, is_untrusted=is_untrusted)) for found in (made, read_back)]
    assert texts[0] == texts[1]


@pytest.mark.proves("S12")
@pytest.mark.parametrize("content", ["x" * 50, {"found": ["é", 1, {"a": None}]}, "ß"])
def test_input_token_bound_counts_the_frames_around_untrusted_content(content: str) -> None:
    message = ToolMessage("a", "find", content, is_untrusted=True)
    request = ModelRequest((UserMessage("x"), message), system="be brief", has_untrusted=True)
    sent = [system_of(request) or "", readable_text(message), "x"]
    assert input_tokens_max(request) >= sum(len(text.encode()) for text in sent)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (None, []), ("url", []), ({"url": "https://a.example/b"}, []), ([5, "url", {"url": 7}, {}], []),
        ([{"url": "https://a.example/b", "media_type": 1}], [FileReference("https://a.example/b")]),
    ],
    ids=str,
)  # fmt: skip
def test_files_of_a_message_that_another_program_has_enqueued_break_no_turn(files: Any, found: Any) -> None:
    assert list(files_of_message({"text": "Look", "files": files})) == found


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "http://a.example/b", "https://user:secret@a.example/b", "https://", "https://[::1", "https://a.example/\x1b[31m",
     "https://a.example/b c", "", 5],
)  # fmt: skip
def test_file_that_is_no_https_url_is_rejected(url: Any) -> None:
    for file in (url, FileReference(url)):
        with pytest.raises(InvalidInput) as caught:
            message_payload("Look", [file])
        assert (caught.value.code, caught.value.path) == ("invalid_url", "/files/0")
        assert ":secret@" not in str(caught.value)

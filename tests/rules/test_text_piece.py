"""A piece of the text of a reply is a str with an offset, also as a copy."""

import copy
import pickle  # noqa: TID251 -- users may send a piece to another process

import msgspec
import pytest

from heliograph.client import TextPiece


@pytest.mark.proves("P-58")
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_piece_of_a_reply_is_copied_and_pickled_with_its_offset(protocol: int) -> None:
    piece = TextPiece("well, ", 3)
    for made in (copy.copy(piece), copy.deepcopy([piece])[0], pickle.loads(pickle.dumps(piece, protocol))):  # noqa: S301 -- our own
        assert (type(made), made, made.offset) == (TextPiece, "well, ", 3)


def test_text_of_a_piece_is_a_plain_text_for_libraries_that_accept_no_subclass() -> None:
    piece = TextPiece("well, ", 3)
    assert type(str(piece)) is type("".join([piece])) is str
    assert msgspec.json.encode(str(piece)) == b'"well, "'
    with pytest.raises(TypeError, match="TextPiece"):  # the docs say so: remove the sentence once it encodes one
        msgspec.json.encode(piece)

"""Texts that look like keys are replaced in recordings, adapters and output, and ordinary texts are not."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph import key_patterns
from heliograph.adapters.signal_lines import SignalLines
from heliograph.key_patterns import StreamedText, json_without_secrets, text_without_secrets, without_secrets
from heliograph.redaction import keep_out, start_of_divided_secret
from tests.grids import share_of_examples
from tests.rules.playback_kit import signal

KEY = "a1B2" * 10
DASHED = "a1B2c3D4-" * 4 + "a1B2c3D4"
JWT = f"eyJ{KEY}.eyJ{KEY}.{KEY}"
KEYS = [
    f"sk-proj-{KEY}", f"sk_live_{KEY}", f"hf_{KEY}", f"glpat-{KEY}", f"ghp_{KEY}", f"ya29.{KEY}", f"xoxb-{KEY}", "AKIA" + "A1B2" * 4,
    f"Bearer {KEY}", "Basic dXNlcjpwYXNzd29yZA==", "bearer abcdefghijklmnopqrstuvwxyz", "amqp://ann:a-password@host/queue",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: DES-EDE3-CBC,00FF\n\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----", JWT, f"eyJ-{JWT}",
    "------BEGIN PRIVATE KEY-----\n-MIIEowIBAAKCAQEA\n-AB==\n------END PRIVATE KEY-----",
    "-  -----BEGIN RSA PRIVATE KEY-----\n-  Proc-Type: 4,ENCRYPTED\n-  DEK-Info: DES-EDE3-CBC,00FF\n-\n-  MIIEowIBAAKCAQEA\n-  -----END RSA PRIVATE KEY-----",
    "> - -----BEGIN PRIVATE KEY-----\r\n> - AKIAABCDABCDABCDABCD\r\n> - MIIEowIBAAKCAQEA\r\n> - -----END PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\nComment: made with gpg-tools - https://example.org\n\nMIIEowIBAAKCAQEA\n=x9Yz\n-----END PGP PRIVATE KEY BLOCK-----",
    "-------BEGIN X25519 PRIVATE KEY-----\n--MIIEowIBAAKCAQEA\n--AB==\n-------END X25519 PRIVATE KEY-----",
    '{"diff": "------BEGIN PRIVATE KEY-----\\n-MIIEowIBAAKCAQEA\\n-AB==\\n------END PRIVATE KEY-----"}',
    '-  "-----BEGIN PRIVATE KEY-----\\n"\n-  "MIIEowIBAAKCAQEA\\n"\n-  "-----END PRIVATE KEY-----"',
    "> - - -----BEGIN PGP PRIVATE KEY BLOCK-----\n> - - Version: a-b\n> - -\n> - - MIIEowIBAAKCAQEA\n> - - -----END PGP PRIVATE KEY BLOCK-----",
]  # fmt: skip


@pytest.mark.proves("P-29")
@pytest.mark.parametrize("text", KEYS)
def test_key_is_replaced(text: str) -> None:
    found = without_secrets({"key": [f"say {text} twice"]})["key"][0]
    assert "***" in found
    assert secret_of(text) not in found
    assert text_without_secrets(f"say {text} twice") == found
    said = json.loads(json_without_secrets({"key": [f"say\n{text}\ttwice"]}))["key"][0]
    assert said.split() == found.split(), "in JSON, the letter of an escape is before the key"


@pytest.mark.parametrize("text", KEYS)
@pytest.mark.parametrize("before", ["say ", '{"a":"' + "b" * 80 + '","k":"', '"' * 95])
@pytest.mark.parametrize("step", [1, 3, 7])
def test_no_part_of_a_key_is_in_the_lines_of_a_streamed_text(text: str, before: str, step: int) -> None:
    lines = list[str]()
    view = SignalLines(lines.append)
    said = f"{before}{text}\n and more\n"
    for start in range(0, len(said), step):
        view.show(signal(1, "text:delta", "poet", payload={"content": said[start : start + step]}))
    view.flush()
    shown, secret = " ".join(lines), secret_of(text)
    assert "***" in shown
    assert shown.rstrip().endswith("and more")
    assert not [part for part in range(len(secret) - 7) if secret[part : part + 8] in shown], shown


def test_token_with_a_part_that_looks_like_a_key_is_replaced_as_a_whole() -> None:
    assert text_without_secrets(f"eyJ{KEY}-sk-{KEY}.eyJ{KEY}.{KEY}, eyJ{KEY}.sk-{KEY}") == f"***, eyJ{KEY}.***"


def secret_of(text: str) -> str:
    """The part of a text that must not be shown."""
    if "BEGIN" in text:
        return "MIIEowIBAAKCAQEA"
    return text.rsplit(maxsplit=1)[-1].removeprefix("amqp://ann:").partition("@")[0]


@pytest.mark.proves("P-29")
def test_key_after_a_block_without_an_end_is_replaced_as_a_whole() -> None:
    block = "-----BEGIN PRIVATE KEY-----\nMIIE"
    assert text_without_secrets(f"{block} cut\nOPENAI_API_KEY=sk-{KEY} x") == "***"
    assert text_without_secrets(f"{block}-----END PRIVATE KEY-----\nsk-{KEY} x") == "***\n*** x"
    for key in (f"{JWT}-", f"bearer {DASHED}", f"amqp://ann:{DASHED}@host"):
        text = f"{block} {key}\nx-y"
        assert streamed(list(text)) == text_without_secrets(text) == "***-y"


@pytest.mark.parametrize(("text", "clean"), [
    ("-----BEGIN PRIVATE KEY-----\n- the first item\n- another", "***- the first item\n- another"),
    ("-----BEGIN PRIVATE KEY-----\n-MIIE\n------END PRIVATE KEY-----\n-x: 1\n+y: 2", "***\n-x: 1\n+y: 2"),
    ("-----BEGIN PRIVATE KEY-----\nComment: x-----END PRIVATE KEY-----\na text - and more", "***\na text - and more"),
    ("- -----BEGIN PGP PRIVATE KEY BLOCK-----\n- Comment: a - b\n- MIIE\n- -----END PGP PRIVATE KEY BLOCK-----\n- MIIE", "- ***\n- MIIE"),
])  # fmt: skip
def test_text_after_a_block_remains(text: str, clean: str) -> None:
    assert streamed(list(text)) == text_without_secrets(text) == clean


@pytest.mark.parametrize("before", [f"sk-{'a1' * 12}_", f"bearer {'a1' * 12}+"])
def test_block_directly_after_a_key_is_replaced(before: str) -> None:
    text = f"{before}-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END PRIVATE KEY-----\nx-y"
    assert text_without_secrets(text).endswith("***\nx-y")
    assert "MIIE" not in streamed(list(text))


@pytest.mark.parametrize("key", [JWT, "-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END PRIVATE KEY-----"])
def test_key_after_a_letter_is_replaced(key: str) -> None:
    for text in (f"token{key} x", json.dumps(f"\n{key} x")):
        whole = text.replace(key, "***").replace(json.dumps(key)[1:-1], "***")
        assert streamed(list(text)) == text_without_secrets(text) == whole


@pytest.mark.parametrize("text", [
    "task-management-and-scheduling-2026", "run_desk-assignments-of-the-week_12", "a basic understanding of basic requirements",
    "Basic Requirements", "the bearer of good news", "https://example.org/a:b@c", "HAKIAABCDEFGHIJKLMNOPQ",
])  # fmt: skip
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert without_secrets(text) == text


UNITS = [
    "a",
    "://",
    "bearer ",
    "basic  ",
    "eyJ",
    "eyJ-",
    "xeyJ_aaaaaaaaaa.",
    "eyJ_aaaaaaaaaa.",
    "sk-",
    "-----BEGIN ",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----bearer a-",
    "-----BEGIN PRIVATE KEY-----" + "-Type:A-Info: " * 600,
    "-----BEGIN PRIVATE KEY-----" + "\n- \t-Comment: x\n- AAAA " * 400,
    " ",
    "npm_",
    "AIza-",
    "://a:",
]


@pytest.mark.parametrize("before", ["", "-----BEGIN PRIVATE KEY-----\n-"])
@pytest.mark.parametrize("unit", UNITS)
def test_long_text_is_searched_in_proportion_to_its_length(unit: str, before: str) -> None:
    def cost(length: int) -> int:
        """The least CPU time of five searches."""
        text, costs = f"{before}{unit * (length // len(unit))}x y", []
        for _ in range(5):
            began = time.thread_time_ns()
            without_secrets(text)
            costs.append(time.thread_time_ns() - began)
        return min(costs)

    assert cost(40_000) < 8 * cost(10_000), "a linear search takes four times as long, a quadratic one sixteen times"


@pytest.mark.parametrize("key", KEYS)
def test_no_piece_of_a_streamed_text_has_a_part_of_a_key(key: str) -> None:
    text = f"say {key} twice, and {key}"
    for size in (1, 2, 3, 7):
        found = streamed([text[place : place + size] for place in range(0, len(text), size)])
        assert secret_of(key) not in found
        assert found == text_without_secrets(text)


# Whole keys, their parts, and what stands between them. No text without a key contains `Canary`.
CANARY = "Canary1234" * 4
PARTS = [
    *KEYS, f"sk-{CANARY}", f"Bearer {CANARY}", f"Bearer {DASHED}", f"amqp://ann:{DASHED}@host", "x" + JWT,
    f"amqp://ann:{CANARY}@host", f'amqp://ann:{CANARY}"{CANARY}@host',
    f"-----BEGIN PRIVATE KEY-----\n{CANARY} {CANARY}\n-----END PRIVATE KEY-----", "first Known Secret!",
    f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n-Comment: a - b\n-\n-{CANARY}\n------END PGP PRIVATE KEY BLOCK-----", "\n-", "\n - ", "- ", ">", "Comment: ", "Version:", "\\n-", "Known Secret!!", "Known",
    "sk-", "bearer", "Basic  ", "://", "://ann:", "-----BEGIN ", "PRIVATE KEY-----", "-----END ", "-", ":", "/", "@", "_", "x", "abc123", "=",
    " ", "  ", "\n", "\t", '"', ",", "é", "字", "word", "two words ",
]  # fmt: skip


@pytest.mark.proves("P-29")
@given(parts=st.lists(st.sampled_from(PARTS), max_size=8), cuts=st.lists(st.integers(0, 400), max_size=12))
@share_of_examples(40)
def test_streamed_text_is_redacted_like_the_whole_text_however_it_is_divided(parts: list[str], cuts: list[int]) -> None:
    keep_out("first Known Secret!", "Known Secret!!")
    text = "".join(parts)
    whole = text_without_secrets(text)
    places = sorted({0, *(place for place in cuts if place < len(text)), len(text)})
    assert streamed([text[start:end] for start, end in pairwise(places)]) == whole
    assert streamed(list(text)) == whole


@given(
    parts=st.lists(st.sampled_from([part for part in PARTS if "Canary" in part]), min_size=1, max_size=4),
    size=st.integers(1, 40),
)
@share_of_examples(40)
def test_no_key_between_words_is_printed(parts: list[str], size: int) -> None:
    text = " and ".join(parts)
    assert "Canary" not in streamed([text[place : place + size] for place in range(0, len(text), size)])


@pytest.mark.proves("P-29")
@given(
    padding=st.integers(15_900, 16_100),
    size=st.sampled_from([4, 25, 700, 15_990, 20_000]),
    canary=st.sampled_from(["known-Canary-with-letters", *(part for part in PARTS if "Canary" in part)]),
)
@share_of_examples(25)
def test_no_part_of_a_secret_after_a_long_word_is_printed(padding: int, size: int, canary: str) -> None:
    keep_out("known-Canary-with-letters")
    text = f"{'a' * padding}-{canary} end"
    found = streamed([text[place : place + size] for place in range(0, len(text), size)])
    assert "Canary" not in found
    assert not [part for part in range(18) if "known-Canary-with-letters"[part : part + 8] in found]
    assert found == text_without_secrets(text)


@pytest.mark.parametrize("divided", range(1, 25))
def test_no_part_of_a_secret_is_printed_that_a_long_piece_divides(divided: int) -> None:
    keep_out("known-Canary-with-letters")
    secret, text = "known-Canary-with-letters", StreamedText()
    assert text.add("a" * 20_000 + "-" + secret[:divided]) == ""
    assert text.add(f"{secret[divided:]} ") + text.end() == "a" * 20_000 + "-*** "


def test_words_after_a_long_word_are_printed_before_the_text_ends() -> None:
    text = StreamedText()
    assert text.add("a" * 16_000) == ""
    assert "".join(text.add(" and") for _ in range(16_000 // 8 // 4)).startswith("a" * 16_000 + " and and")
    assert text.add(" more ") == "and more "


@pytest.mark.parametrize("unit", ["a", "bearer ", "basic  ", "://a:b ", "://,", "-----BEGIN ", "://,bearer ", "Known "])
def test_streamed_text_is_searched_in_proportion_to_its_length(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_out("first Known Secret!", "Known Secret!!")
    searched = list[int]()

    def counted(text: str, end: int) -> int:
        searched.append(len(text))
        return start_of_divided_secret(text, end)

    monkeypatch.setattr(key_patterns, "start_of_divided_secret", counted)  # each step of a search begins with it
    characters = list[int]()
    for length in (2_000, 4_000):
        searched.clear()
        text = unit * (length // len(unit))
        assert streamed([text[place : place + 4] for place in range(0, len(text), 4)]) == text_without_secrets(text)
        characters.append(sum(searched))
    assert characters[1] < 3 * characters[0], "it is quadratic: the event loop waits for seconds"


def streamed(pieces: list[str]) -> str:
    """What is printed of a text that arrives in pieces."""
    text = StreamedText()
    return "".join([*map(text.add, pieces), text.end(), text.end()])


def test_short_password_of_a_url_is_replaced() -> None:
    assert text_without_secrets("a://b:c@d") == "a://b:***@d"


def test_keys_of_an_object_that_become_the_same_have_numbers_in_any_order() -> None:
    keep_out("a-known-secret-a", "a-known-secret-b")
    items = {
        f"sk-{KEY}A": 1,
        f"sk-{KEY}B": 2,
        "a-known-secret-b": 3,
        "***": 0,
        "*** (3)": 4,
        "a-known-secret-a": {"x": 5},
    }
    found = without_secrets(items)
    assert sorted(found) == ["***", "*** (2)", "*** (3)", "*** (4)", "*** (5)", "*** (6)"]
    assert (found["***"], found["*** (3)"]) == (0, 4)
    assert sorted(map(str, found.values())) == sorted(map(str, items.values())), "nothing is lost"
    assert without_secrets(dict(reversed(items.items()))) == found == without_secrets(found)
    assert json.loads(json_without_secrets({"of": items})) == {"of": found}

"""Words, sentences and syllables of plain text, as `inline.py` leaves it: code stands in `backticks`.

All of it is estimate. Sentences end where English, and most scripts without
capitals, end them; syllables are counted by the vowels a reader sees.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from examples.newsroom.vocabulary import ABBREVIATIONS, ENGLISH_ONLY, MAY_END, NUMBERED

# Python's \w leaves out combining marks, which would cut a word of Hindi or Thai at every vowel sign.
_MARKS = "".join(chr(c) for c in range(0x300, 0x3100) if unicodedata.category(chr(c)).startswith("M"))
_WORD = rf"[^\W\d_](?:[^\W_]|[{_MARKS}])*+(?:['’\-‑][^\W\d_](?:[^\W_]|[{_MARKS}])*+)*+"
_CODE_OR_URL = r"`[^`]*+`|https?://\S++|www\.\S++|(?<![\w.+-])\w[\w.+-]{0,63}+@[\w-]++\.[\w.-]++"
_WORDS = re.compile(rf"{_CODE_OR_URL}|({_WORD})")
_OPAQUE = re.compile(_CODE_OR_URL)
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")

_END = re.compile(r"[.!?…؟।]++[\"'”’)\]»*_]*+(?=\s|$)|[。！？]++[”’」』）]*+")
_LAST_TOKEN = re.compile(r"[^\s(\[“\"]*$")


def words(text: str) -> list[str]:
    """The words in reading order, without numbers, code and addresses."""
    return [match[1] for match in _WORDS.finditer(text) if match[1]]


def words_with_place(text: str) -> Iterator[tuple[str, int, int]]:
    """Each word with its start and end; code and addresses come as an empty word, so that neighbours stay apart."""
    for match in _WORDS.finditer(text):
        yield match[1] or "", match.start(), match.end()


def without_code(text: str) -> str:
    """`text` of the same length with code and addresses blanked out."""
    return _OPAQUE.sub(lambda match: " " * len(match[0]), text)


def count_words(text: str) -> int:
    """Count the words. Chinese and Japanese have no spaces, so each of their characters counts as one."""
    found = words(text)
    return len(found) + sum(max(0, len(_UNSPACED.findall(word)) - 1) for word in found)


def is_english(found: Sequence[str]) -> bool:
    """Whether the text is English, judged by the share of common small words."""
    if len(found) < 8:
        return all(word.isascii() for word in found)
    small = sum(word.lower() in ENGLISH_ONLY for word in found)
    return small / len(found) >= 0.08


def most_common(counted: Counter[str], limit: int) -> list[tuple[str, int]]:
    """Return the most common entries, ties in alphabetical order. `Counter.most_common` keeps ties in their first order."""
    return sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]


def sentences(text: str) -> list[tuple[int, str]]:
    """Cut plain text into (offset, sentence). Newlines inside a sentence are kept, white space around it is not."""
    blind = _OPAQUE.sub(lambda match: _cover(match[0]), text)
    found: list[tuple[int, str]] = []
    start = 0
    for match in _END.finditer(blind):
        if match.end() < len(blind) and not _ends_sentence(blind, match):
            continue
        _keep(found, text, start, match.end())
        start = match.end()
    _keep(found, text, start, len(text))
    return found


def _cover(opaque: str) -> str:
    """Hide full stops inside code and addresses. The last one of an address stays, because it ends the sentence."""
    if opaque.startswith("`"):
        return "`" * len(opaque)
    inner = opaque.rstrip(".!?")
    return "`" * len(inner) + opaque[len(inner) :]


def _keep(found: list[tuple[int, str]], text: str, start: int, end: int) -> None:
    piece = text[start:end]
    bare = piece.strip()
    if any(c.isalnum() or c == "`" for c in bare):
        found.append((start + len(piece) - len(piece.lstrip()), bare))


def _ends_sentence(text: str, end: re.Match[str]) -> bool:
    """Whether a full stop before white space ends a sentence: not after `e.g.`, an initial, or before a small letter."""
    if end[0][0] in "。！？؟।":
        return True
    following = text[end.end() : end.end() + 40].lstrip(" \t\n\"'“‘(*_[")
    if following[:1].islower():
        return False
    if end[0][0] != ".":
        return True
    last = _LAST_TOKEN.search(text, max(0, end.start() - 24), end.start())
    before = last[0].lower() if last else ""
    if before in MAY_END:
        return not following[:1].isdigit()
    is_initial = len(before) == 1 and before.isalpha() and before not in "ix"
    return not (is_initial or before in ABBREVIATIONS or (before in NUMBERED and following[:1].isdigit()))


_VOWELS = re.compile(r"[aeiouyáéíóúàèìòùâêîôûäëïöü]+")
# Written together, spoken apart: medium, previous, client, create, continuous, being, doing, actual, prism.
_PRONOUNCED_APART = re.compile(
    r"i[au](?<![tcsg]i.)|io(?<![tcsgx]io)|ie[nt](?<![tcr]ie.)|(?<=cr)eat(?=e|i|or)|(?:rea|dea)$|uou"
    r"|[aeouy]ing|ua(?<![qg]ua)|ism$|[^aeiouy]n't$"
)
# Written, not spoken: the last e of "make", "makes", "saved"; the one inside "likely", "useless", "statement".
_SILENT = re.compile(
    r"(?<![aeiouy])(?<![^aeiouyl]l)e$|(?<![aeiouyscxzgh])(?<![^aeiouyl]l)es$|(?<![aeiouytd])(?<![^aeiouyl]l)ed$"
    r"|[^aeiouyl]e(?:ly|ful|less|ment)"
)


@lru_cache(maxsize=65_536)
def syllables(word: str) -> int:
    """Estimate the syllables of one English word: groups of vowels, less the silent e; at least one."""
    return sum(_syllables(part) for part in word.replace("’", "'").replace("‑", "-").split("-"))


def _syllables(word: str) -> int:
    if word.isupper() and (len(word) <= 3 or not _VOWELS.search(word.lower())):
        return len(word)  # spelled out: SQL, API, HTTP
    word = word.lower()
    groups = len(_VOWELS.findall(word.partition("'")[0]))
    return max(1, groups + len(_PRONOUNCED_APART.findall(word)) - len(_SILENT.findall(word)))

"""The repetition critic: doubled words, overused words, phrases that come back, sentences that begin alike."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.newsroom.document import Document, Part, Sentence
from examples.newsroom.finding import Finding, Severity, excerpt, settle
from examples.newsroom.prose import is_english, most_common, words, words_with_place
from examples.newsroom.vocabulary import DOUBLES_ALLOWED, STOP_WORDS

NAME = "repetition"
CHECKS = (
    "doubled words, in prose and in lists",
    "content words used far more often than the length explains, unless a heading shows that they are the subject",
    "phrases of four or more words that occur three or more times; three sentences in a row with the same first word",
)
LIMITS = (
    "list items, but for doubled words: the entries of a list are alike on purpose",
    "synonyms and repeated ideas in other words, which are not recognised",
)

PHRASE_WORDS_MIN, PHRASE_TIMES_MIN, PHRASE_TIMES_OFTEN, PHRASES_REPORTED = 4, 3, 5, 10
OVERUSE_TEXT_WORDS_MIN, OVERUSE_TIMES_MIN, OVERUSE_SHARE_MIN, OVERUSED_REPORTED = 200, 8, 0.015, 5
SAME_START_MIN = 3

_QUOTES = frozenset("'\"‘’“”")


def review(document: Document, base: Path | None = None) -> list[Finding]:
    """Find repetitions: doubled words in every language, overused ones only in English."""
    found = [*_doubled(document), *_same_starts(document)]
    found += _repeated_phrases(document)
    if is_english(_words(document)):
        found += _overused(document)
    return settle(found)


def figures(document: Document, base: Path | None = None) -> dict[str, Any]:
    """`vocabulary_share` is distinct words over all words; `most_used` are the ten commonest content words."""
    found = _words(document)
    counted = _content(found)
    return {
        "words": len(found),
        "distinct_words": len(set(found)),
        "vocabulary_share": round(len(set(found)) / len(found), 3) if found else None,
        "doubled_words": sum(1 for _ in _doubled(document)),
        "repeated_phrases": len(repeated_phrases(document)),
        "most_used": [{"word": word, "times": times} for word, times in most_common(counted, 10)],
    }


def _words(document: Document) -> list[str]:
    return [word.lower() for part in document.prose for sentence in part.sentences for word in words(sentence.text)]


def _paragraphs(document: Document) -> list[Part]:
    """The prose without list items: entries of a list are alike on purpose."""
    return [part for part in document.prose if part.kind != "item"]


def _content(found: list[str]) -> Counter[str]:
    """Count each content word. A plural in -s counts with its singular if the text has both."""
    counted = Counter(word for word in found if len(word) > 3 and word not in STOP_WORDS)
    for word in [word for word in counted if word.endswith("s") and word[:-1] in counted]:
        counted[word[:-1]] += counted.pop(word)
    return counted


def _doubled(document: Document) -> Iterator[Finding]:
    for part in document.parts:
        for sentence in part.sentences:
            yield from _doubled_in(sentence)


def _doubled_in(sentence: Sentence) -> Iterator[Finding]:
    before, before_start, before_end, line = "", 0, 0, sentence.line
    for word, start, end in words_with_place(sentence.text):
        line += sentence.text.count("\n", before_start, start)
        is_next = sentence.text[before_end:start].isspace()
        is_quoted = (
            sentence.text[before_start - 1 : before_start] in _QUOTES and sentence.text[end : end + 1] in _QUOTES
        )
        if word and is_next and word.lower() == before.lower() and not is_quoted and not _may_double(word, before):
            message = f"the word “{excerpt(word.lower(), 40)}” stands twice in a row"
            severity: Severity = "warning" if word.lower() in STOP_WORDS else "note"
            yield Finding(NAME, severity, line, message, excerpt(sentence.text[max(0, before_end - 60) : end + 60]))
        before, before_start, before_end = word, start, end


def _may_double(word: str, before: str) -> bool:
    """Whether a repetition can be intended: names (Duran Duran), "had had", single letters of formulas."""
    if len(word) == 1:
        return word != "a" or before != "a"
    return word.lower() in DOUBLES_ALLOWED or (word[0].isupper() and before[0].isupper())


def _overused(document: Document) -> Iterator[Finding]:
    found = [
        word for part in _paragraphs(document) for one in part.sentences for word in map(str.lower, words(one.text))
    ]
    if len(found) < OVERUSE_TEXT_WORDS_MIN:
        return
    subject = {word.lower() for section in document.sections for word in words(section.heading)}
    subject |= {word.lower() for part in document.parts for code in part.code for word in words(code)}
    floor = max(OVERUSE_TIMES_MIN, OVERUSE_SHARE_MIN * len(found))
    over = {word: times for word, times in _content(found).items() if times >= floor and not _is_among(word, subject)}
    for word, times in most_common(Counter(over), OVERUSED_REPORTED):
        sentence = _first_with(document, word)
        message = f"“{word}” is used {times} times in {len(found):,} words; a reader notices"
        yield Finding(NAME, "note", sentence.line, message, excerpt(sentence.text))


def _is_among(word: str, subject: set[str]) -> bool:
    return not subject.isdisjoint({word, f"{word}s", f"{word}es", word.removesuffix("s")})


def _first_with(document: Document, word: str) -> Sentence:
    forms = {word, f"{word}s"}
    spoken = (sentence for part in _paragraphs(document) for sentence in part.sentences)
    return next(one for one in spoken if not forms.isdisjoint(found.lower() for found in words(one.text)))


@dataclass(frozen=True, slots=True)
class Phrase:
    """A sequence of words in lower case, and the lines where it occurs."""

    text: str
    lines: tuple[int, ...]


def repeated_phrases(document: Document) -> list[Phrase]:
    """The phrases of four words or more that occur three times or more, each as long as all its places agree.

    Phrases do not cross the end of a sentence or code, and need content words ("as well as the" has none). The time
    per word is bounded, however repetitive the text is.
    """
    flow = _flow(document)
    starts: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for start in range(len(flow) - PHRASE_WORDS_MIN + 1):
        run = tuple(word for word, _ in flow[start : start + PHRASE_WORDS_MIN])
        if all(run):
            starts[run].append(start)
    taken = bytearray(len(flow))
    found = []
    for places in starts.values():
        if len(places) < PHRASE_TIMES_MIN:
            continue
        free = _apart(places, taken)
        if len(free) >= PHRASE_TIMES_MIN:
            length = _grow(flow, free, taken)
            said = [word for word, _ in flow[free[0] : free[0] + length]]
            while said and said[-1] in STOP_WORDS:
                said.pop()  # "here's an example of" is an example of nothing in particular
            if len(said) >= PHRASE_WORDS_MIN and _has_matter(said, len(free)):
                found.append(Phrase(" ".join(said), tuple(flow[place][1] for place in free)))
    return found


def _flow(document: Document) -> list[tuple[str, int]]:
    """All words of the paragraphs with their lines; an empty word stands where a phrase must stop."""
    flow: list[tuple[str, int]] = []
    for part in _paragraphs(document):
        for sentence in part.sentences:
            line, before_end = sentence.line, 0
            for word, start, end in words_with_place(sentence.text):
                between = sentence.text[before_end:start]
                line += between.count("\n")
                if between.strip(" ,\n"):
                    flow.append(("", line))  # a number, a bracket or a colon ends a phrase
                flow.append((word.lower(), line))
                line, before_end = line + sentence.text.count("\n", start, end), end
            flow.append(("", line))
    return flow


def _has_matter(phrase: Sequence[str], times: int) -> bool:
    """Whether the phrase has enough content words: two if it occurs often, otherwise three."""
    return sum(word not in STOP_WORDS for word in phrase) >= (2 if times >= PHRASE_TIMES_OFTEN else 3)


def _apart(places: list[int], taken: bytearray) -> list[int]:
    """Return the places that do not overlap each other or an earlier phrase."""
    free: list[int] = []
    for place in places:
        clear = not any(taken[place : place + PHRASE_WORDS_MIN])
        if clear and (not free or place >= free[-1] + PHRASE_WORDS_MIN):
            free.append(place)
    return free


def _grow(flow: list[tuple[str, int]], places: list[int], taken: bytearray) -> int:
    """Extend the phrase while the next word is the same in all places; mark its words as taken; return its length."""
    length = PHRASE_WORDS_MIN
    room = min(after - before for before, after in zip(places, [*places[1:], len(flow)], strict=True))
    while length < room:
        following = {flow[place + length][0] for place in places}
        if len(following) > 1 or following == {""} or any(taken[place + length] for place in places):
            break
        length += 1
    for place in places:
        taken[place : place + length] = b"\1" * length
    return length


def _repeated_phrases(document: Document) -> Iterator[Finding]:
    ranked = sorted(repeated_phrases(document), key=lambda one: (-len(one.lines) * len(one.text), one.lines))
    for phrase in ranked[:PHRASES_REPORTED]:
        lines = ", ".join(str(line) for line in phrase.lines[:6]) + (", …" if len(phrase.lines) > 6 else "")
        message = f"“{excerpt(phrase.text, 100)}” occurs {len(phrase.lines)} times (lines {lines})"
        yield Finding(NAME, "note", phrase.lines[0], message)


def _same_starts(document: Document) -> Iterator[Finding]:
    """Find sentences that start alike within one paragraph; neighbouring paragraphs are often alike on purpose."""
    for part in _paragraphs(document):
        yield from _same_starts_in(part)


def _same_starts_in(part: Part) -> Iterator[Finding]:
    run: list[Sentence] = []
    first = ""
    for sentence in [*part.sentences, None]:
        opening = _opening(sentence) if sentence is not None else ""
        if sentence is not None and opening and opening == first:
            run.append(sentence)
            continue
        if len(run) >= SAME_START_MIN:
            message = f"{len(run)} sentences in a row begin with “{first}”"
            yield Finding(NAME, "note", run[0].line, message, excerpt(run[0].text))
        run, first = [sentence] if sentence is not None else [], opening


def _opening(sentence: Sentence) -> str:
    """The first word, small, and after an article the second too; nothing when code or an address comes first."""
    first = ""
    for word, _, _ in words_with_place(sentence.text):
        if first:
            return f"{first} {word.lower()}" if word else ""
        first = word.lower()
        if first not in ("the", "a", "an"):
            break
    return first

"""The readability critic: how long the sentences are and how hard the text reads.

The two Flesch formulas are fitted to English; for other languages they would
print a number that means nothing, so they are left out there. Syllables and the
passive voice are estimates: read them as a tendency, not as a count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.newsroom.document import Document, Section, Sentence
from examples.newsroom.finding import Finding, Severity, excerpt, settle
from examples.newsroom.prose import count_words, is_english, syllables, without_code, words
from examples.newsroom.vocabulary import ADJECTIVES_LIKE_PARTICIPLES, IRREGULAR_PARTICIPLES

NAME = "readability"
CHECKS = (
    "length of every sentence of prose; Flesch reading ease and Flesch-Kincaid grade of the text and of each section",
    "passive voice, by a form of “be” before a participle (a heuristic: it misses some and suspects some)",
)
LIMITS = ("words in code, tables and headings are not counted; syllables are estimated from spelling",)

LONG_WORDS, VERY_LONG_WORDS = 40, 60
HARD_GRADE = 16.0
PASSIVE_SHARE_MAX = 0.35
SCORED_WORDS_MIN, SECTION_WORDS_MIN, TEXT_SENTENCES_MIN = 30, 100, 10
LONGEST_SHOWN, SECTIONS_SHOWN, LONG_REPORTED = 5, 40, 12

_PASSIVE = re.compile(
    r"\b(?:am|is|are|was|were|be|been|being|isn't|aren't|wasn't|weren't)\s+(?:not\s+|never\s+|also\s+|only\s+)?"
    r"(?:been\s+|being\s+)?(?:\w+ly\s+)?([a-z]+)\b",
    re.IGNORECASE,
)


def review(document: Document, base: Path | None = None) -> list[Finding]:
    """Find sentences over 40 words, sections above grade 16, and much passive voice."""
    prose = _prose(document)
    found = _long_sentences(prose)
    if is_english(_words_of(prose)):
        found += _hard_sections(document)
        passive = [sentence for sentence in prose if is_passive(sentence.text)]
        if len(prose) >= TEXT_SENTENCES_MIN and len(passive) > PASSIVE_SHARE_MAX * len(prose):
            message = f"{len(passive)} of {len(prose)} sentences look passive; say who does it where that matters"
            found.append(_remark("note", passive[0], message))
    return settle(found)


def figures(document: Document, base: Path | None = None) -> dict[str, Any]:
    """Counts and scores of the whole text; `sections` are the forty with the most words, in order of the document."""
    prose = _prose(document)
    measured = [measure(section) for section in document.sections]
    largest = sorted(measured, key=lambda one: -one["words"])[:SECTIONS_SHOWN]
    longest = sorted(prose, key=lambda sentence: (-count_words(sentence.text), sentence.line))[:LONGEST_SHOWN]
    english = is_english(_words_of(prose))
    passive = sum(is_passive(sentence.text) for sentence in prose)
    return {
        **_scores(prose),
        "language": "English" if english else "not English, as far as its words show",
        "passive_share": round(passive / len(prose), 3) if prose and english else None,
        "longest_sentences": [
            {"line": one.line, "words": count_words(one.text), "excerpt": excerpt(one.text)} for one in longest
        ],
        "sections": sorted((one for one in largest if one["words"]), key=lambda one: one["line"]),
    }


def measure(section: Section) -> dict[str, Any]:
    """The scores of one section's own prose, with its heading and line."""
    prose = [sentence for part in section.parts if part.is_prose for sentence in part.sentences]
    return {"heading": excerpt(section.heading, 80), "line": section.line, **_scores(prose)}


def is_passive(sentence: str) -> bool:
    """Whether a form of "be" precedes a word that looks like a participle."""
    return any(_is_participle(match[1].lower()) for match in _PASSIVE.finditer(sentence))


def _is_participle(word: str) -> bool:
    if word in ADJECTIVES_LIKE_PARTICIPLES:
        return False
    return word in IRREGULAR_PARTICIPLES or (len(word) > 4 and word.endswith("ed") and not word.endswith("eed"))


def _prose(document: Document) -> list[Sentence]:
    return [sentence for part in document.prose for sentence in part.sentences]


def _words_of(prose: Sequence[Sentence]) -> list[str]:
    return [word for sentence in prose for word in words(sentence.text)]


def _scores(prose: Sequence[Sentence]) -> dict[str, Any]:
    """Count words and sentences, and compute the scores, which are None under thirty words and outside English."""
    found = _words_of(prose)
    counted = sum(count_words(sentence.text) for sentence in prose)
    per_sentence = counted / len(prose) if prose else 0.0
    scores: dict[str, Any] = {
        "words": counted,
        "sentences": len(prose),
        "average_sentence_words": round(per_sentence, 1),
        "syllables": None,
        "flesch_reading_ease": None,
        "flesch_kincaid_grade": None,
    }
    if len(found) >= SCORED_WORDS_MIN and is_english(found):
        spelled = sum(syllables(word) for word in found)
        per_word = spelled / len(found)
        # Flesch 1948, and Kincaid and others 1975, for the United States Navy.
        scores["syllables"] = spelled
        scores["flesch_reading_ease"] = round(206.835 - 1.015 * per_sentence - 84.6 * per_word, 1)
        scores["flesch_kincaid_grade"] = round(0.39 * per_sentence + 11.8 * per_word - 15.59, 1)
    return scores


def _long_sentences(prose: Sequence[Sentence]) -> list[Finding]:
    """Find the longest sentences over 40 words; beyond a dozen, one finding counts the others."""
    sized = [(count_words(sentence.text), sentence) for sentence in prose]
    long = sorted(((size, one) for size, one in sized if size > LONG_WORDS), key=lambda pair: (-pair[0], pair[1].line))
    found = []
    for size, sentence in long[:LONG_REPORTED]:
        severity: Severity = "warning" if size > VERY_LONG_WORDS else "note"
        stops = without_code(sentence.text).count(";")
        advice = f" and {stops} semicolons; a list would be easier" if stops >= 3 else "; two would be easier"
        found.append(_remark(severity, sentence, f"a sentence of {size} words{advice}"))
    if len(long) > LONG_REPORTED:
        rest = sorted(sentence.line for _, sentence in long[LONG_REPORTED:])
        message = f"{len(rest)} more sentences have over {LONG_WORDS} words"
        found.append(Finding(NAME, "note", rest[0], message))
    return found


def _hard_sections(document: Document) -> list[Finding]:
    found = []
    for section in document.sections:
        scores = measure(section)
        grade = scores["flesch_kincaid_grade"]
        if grade is not None and grade > HARD_GRADE and scores["words"] >= SECTION_WORDS_MIN:
            message = (
                f"this section reads at grade {grade:g}, {scores['average_sentence_words']:g} words a sentence; "
                f"above {HARD_GRADE:g} even specialists slow down"
            )
            found.append(Finding(NAME, "note", section.line, message, excerpt(section.heading)))
    return found


def _remark(severity: Severity, sentence: Sentence, message: str) -> Finding:
    return Finding(NAME, severity, sentence.line, message, excerpt(sentence.text))

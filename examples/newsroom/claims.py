"""The claims critic: sentences that state what could be checked, with nothing near them to check it by.

It does not judge whether a claim is true. It looks for the shapes that claims
take in English (percentages, multiples, measured amounts, comparisons,
superlatives, "studies show", always and never) and for what would support them:
a link, a note, a reference, a figure or table, a command or a block of code in
the same paragraph or in the one after.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.newsroom.document import Document, Part, Sentence
from examples.newsroom.finding import Finding, Severity, excerpt, settle
from examples.newsroom.prose import is_english, without_code, words

NAME = "claims"
CHECKS = (
    "sentences with percentages, multiples, measured amounts, comparisons, superlatives, appeals to studies, and "
    "always or never, for a source in the same paragraph or the next",
)
LIMITS = (
    "whether a claim is true, and whether its source supports it",
    "claims in tables, headings and code, and claims in other words than the English ones looked for",
)

ABSOLUTES_ONE_BY_ONE = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """One form of a claim. The first shape that matches a sentence gives the reason."""

    reason: str
    severity: Severity
    pattern: re.Pattern[str]
    but_not: re.Pattern[str] | None = None

    def matches(self, text: str) -> bool:
        if self.but_not is not None:
            text = self.but_not.sub(" ", text)
        return self.pattern.search(text) is not None


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.VERBOSE)


_COUNTED = (
    r"(?:users?|customers?|developers?|people|companies|teams?|downloads?|installations?|stars|projects|countries)"
)
_BETTER = (
    r"(?:(?:faster|slower|cheaper|better|worse|safer|simpler|easier|smaller|larger|quicker|stronger|lighter)"
    r"|(?:more|less)\s+(?:reliable|efficient|secure|accurate|powerful|robust|scalable|productive|popular|stable"
    r"|readable|maintainable|expensive|effective))"
)
_SUPERLATIVE = (
    r"(?:fastest|slowest|cheapest|best|worst|safest|simplest|easiest|greatest|strongest|leading|most\s+(?:reliable"
    r"|efficient|secure|accurate|powerful|robust|scalable|popular|widely|advanced|complete|comprehensive|trusted))"
)

ABSOLUTE = Shape(
    "an always or never, which one example can refute",
    "note",
    _pattern(r"\b(?:always|never|guarantees?\s+that|impossible\s+to|nobody|no\s+one|everybody|everyone)\b"),
    # Rules and wishes are not claims.
    _pattern(
        r"""\b(?:must|should|shall|may|can|will|would|please|to|you|we|i|and|or|but)\s+(?:always|never)\b|^\W*(?:always|never)\b
        |[.;:,(]\s*(?:always|never)\b|\b(?:almost|not|nearly)\s+(?:always|never)|never\s?mind|\bif\b.{0,60}\bnever\b"""
    ),
)

SHAPES = (
    Shape(
        "an appeal to evidence that is not named",
        "warning",
        _pattern(
            r"""\b(?:(?:studies|research|experiments|surveys|experts|scientists|statistics|evidence|data)\s+(?:\w+ly\s+)?
            (?:show|shows|suggest|suggests|prove|proves|indicate|indicates|agree|confirm|confirms|say)
            |(?:has|have)\s+been\s+(?:shown|proven|demonstrated)|(?:is|are)\s+(?:well[\s-]known|widely\s+accepted)
            |it\s+is\s+(?:known|proven)\s+that|everyone\s+knows|most\s+experts|(?:scientifically|clinically)\s+proven)\b"""
        ),
    ),
    Shape(
        "a comparison without what was compared",
        "warning",
        _pattern(
            rf"""\b(?:{_BETTER}\s+than|outperform(?:s|ed)?|(?:\d+(?:\.\d+)?\s?(?:x|×)|\d+(?:\.\d+)?\s+times|twice)
            \s+(?:as|{_BETTER}|more|less)|(?:an\s+)?orders?\s+of\s+magnitude)\b"""
        ),
        _pattern(r"\b\w+er\s+than\s+(?:[\d.,]+|linear|constant|zero|nothing|this|that|the\s+(?:limit|maximum))\b"),
    ),
    Shape(
        "a share without its source",
        "warning",
        _pattern(r"\b\d+(?:[.,]\d+)?\s?(?:%|percent\b|per\s+cent\b)"),
        _pattern(r"\b100\s?%"),
    ),
    Shape(
        "a count of people or uses without its source",
        "warning",
        _pattern(
            rf"""\b(?:\d[\d.,]*|hundreds|thousands|tens\s+of\s+thousands|millions|billions)(?:\s?(?:k|million|billion))?\+?
            \s+(?:of\s+)?(?:\w+\s+)?{_COUNTED}\b"""
        ),
        _pattern(r"\b(?:[1-9]?\d|one|two|three)\s+(?:\w+\s+)?[a-z]+\b"),
    ),
    Shape(
        "a measured amount without how it was measured",
        "warning",
        _pattern(
            r"""\b(?:takes?|took|needs?|costs?|reach(?:es|ed)?|handles?|handled|process(?:es|ed)?|serves?|served|measured
            |achieves?|sustains?|median|p50|p95|p99|latency|throughput|saves?|reduced?s?|within|under|in)\b[^.;:]{0,50}?
            \b\d[\d.,]*\s?(?:µs|us|ms|milliseconds|(?:requests|messages|turns|rows|queries|operations|events|writes|reads)
            (?:/s|\s+(?:per|a)\s+second)|/s\b|[gmk]b/s|per\s+second)"""
        ),
    ),
    Shape(
        "a superlative without what it was compared with",
        "note",
        _pattern(
            rf"""\b(?:the|a|our|its|world['’]s|is|are|one\s+of\s+the)\s+(?:very\s+|single\s+)?{_SUPERLATIVE}\b
            |\b(?:state[\s-]of[\s-]the[\s-]art|world[\s-]class|best[\s-]in[\s-]class|industry[\s-]leading|unrivalled|unrivaled
            |unmatched|unparalleled|second\s+to\s+none|blazing(?:ly)?[\s-]fast)\b"""
        ),
        _pattern(
            r"""\b(?:\w+est\s+(?:way|method|option|thing)\b|best[\s-](?:practices?|efforts?|to|if|when|of|way|i|we|you|they|it)\b|(?:at|do|try)\s+(?:\w+\s+)?best|leading\s+(?:\w+\s+)?
            (?:to|zeros?|spaces?|slash(?:es)?|whitespace|characters?|dots?|dash(?:es)?|underscores?|comma))\b"""
        ),
    ),
    ABSOLUTE,
)

_SOURCE = _pattern(
    r"""\[\d{1,3}\]|\(\w+[^()]{0,40}\b(?:19|20)\d\d[a-z]?\)|(?:^|[(;,.:]\s*)see\b|\bsources?:|\b(?:table|figure|fig\.|section
    |chapter|appendix)\s+(?:\d|below|above)|\b(?:measured|according\s+to|benchmarks?|reproduce|cf\.|reported\s+by
    |from\s+the\s+(?:docs|documentation|paper|report))\b"""
)
_COMMAND = re.compile(
    r"^(?:\$\s|make |pip |uv |python|npm |cargo |docker |git |go |pytest|curl )|\s--?\w|\w/\w|\w\.\w{1,4}$"
)
_IS_RULE = _pattern(
    r"""\b(?:limit(?:ed|s)?|defaults?|timeouts?|maximum|minimum|at\s+(?:most|least)|up\s+to|must|should|shall|means?|threshold|capped
    |configur(?:e|ed|able)|set\s+to|e\.g\.|for\s+example|suppose|imagine|would|target|goal|budget|aims?)\b"""
)


@dataclass(frozen=True, slots=True)
class Claim:
    sentence: Sentence
    shape: Shape
    has_source: bool


def review(document: Document, base: Path | None = None) -> list[Finding]:
    """Find claims without a source nearby. All uses of always and never share one finding if there are many."""
    bare = [claim for claim in find_claims(document) if not claim.has_source]
    absolute = [claim for claim in bare if claim.shape is ABSOLUTE]
    if len(absolute) <= ABSOLUTES_ONE_BY_ONE:
        return settle(_remark(claim) for claim in bare)
    found = [_remark(claim) for claim in bare if claim.shape is not ABSOLUTE]
    first = absolute[0].sentence
    message = f"{len(absolute)} sentences say always or never with no source nearby ({_lines_of(absolute)})"
    return settle([*found, Finding(NAME, "note", first.line, message, excerpt(first.text))])


def figures(document: Document, base: Path | None = None) -> dict[str, Any]:
    """Count the sentences with checkable claims, and those of each shape that lack a source."""
    claims = find_claims(document)
    bare = Counter(claim.shape.reason for claim in claims if not claim.has_source)
    return {
        "claims": len(claims),
        "with_source": sum(claim.has_source for claim in claims),
        "without_source": sum(bare.values()),
        "by_reason": dict(sorted(bare.items())),
    }


def find_claims(document: Document) -> list[Claim]:
    """Find the claims in order, and whether a source is in the same paragraph or in the part after it."""
    if not is_english([word for part in document.prose for one in part.sentences for word in words(one.text)]):
        return []
    return list(_claims(document))


def _claims(document: Document) -> Iterator[Claim]:
    for section in document.sections:
        body = section.body
        for number, part in enumerate(body):
            if not part.is_prose:
                continue
            made = [(sentence, shape) for sentence in part.sentences if (shape := _shape_of(sentence.text))]
            if made:
                has_source = _supports(part) or (number + 1 < len(body) and _supports(body[number + 1]))
                yield from (Claim(sentence, shape, has_source) for sentence, shape in made)


def _shape_of(text: str) -> Shape | None:
    bare = without_code(text)
    if bare.rstrip().endswith("?") or _IS_RULE.search(bare):
        return None
    return next((shape for shape in SHAPES if shape.matches(bare)), None)


def _supports(part: Part) -> bool:
    if part.kind in ("code", "table") or part.links or part.footnotes or part.images:
        return True
    return any(_COMMAND.search(code) for code in part.code) or _names_source(part.sentences)


def _names_source(prose: Sequence[Sentence]) -> bool:
    return any(_SOURCE.search(sentence.text) for sentence in prose)


def _lines_of(claims: Sequence[Claim], limit: int = 12) -> str:
    lines = [str(claim.sentence.line) for claim in claims[:limit]]
    return "lines " + ", ".join(lines) + (", …" if len(claims) > limit else "")


def _remark(claim: Claim) -> Finding:
    sentence, shape = claim.sentence, claim.shape
    return Finding(NAME, shape.severity, sentence.line, f"no source nearby for {shape.reason}", excerpt(sentence.text))

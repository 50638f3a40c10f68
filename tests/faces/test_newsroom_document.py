from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.newsroom.document import BYTES_MAX, Document, read_document, slug, split
from examples.newsroom.prose import sentences, words
from heliograph.errors import InvalidInput

SAMPLE = """\
---
title: skipped
---
# Orbit

Orbit keeps time. Dr. Low wrote version 3.5 of it, e.g. for `ls -l. And` more.

- One entry
- This item is a whole sentence of prose.

> Quoted words stand here.

```python
# not a heading
the the code
```

| name | link |
|---|---|
| a | [gone](missing.md) |

## Use ![logo](logo.png)

See [the guide](#orbit), <https://example.org/a>, and [docs][d].

[d]: docs/index.md
"""


def kinds(document: Document) -> list[str]:
    return [part.kind for part in document.parts]


# Reading a file


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "file_not_found"),
        (b"", "document_empty"),
        (b" \n\t\n", "document_empty"),
        (b"caf\xe9", "encoding"),
        (b"\x89PNG\r\n\x00\x01", "document_binary"),
        (b"a" * (BYTES_MAX + 1), "document_too_large"),
    ],
    ids=["missing", "empty", "blank", "latin-1", "binary", "too large"],
)
def test_invalid_document_is_rejected_with_a_code(tmp_path: Path, content: bytes | None, code: str) -> None:
    path = tmp_path / "draft.md"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput) as refused:
        read_document(path)
    assert refused.value.code == code
    assert "draft.md" in refused.value.message


@pytest.mark.parametrize(("name", "code"), [("", "is_directory"), ("a\0b", "file_unreadable")], ids=["folder", "nul"])
def test_missing_file_is_rejected_with_a_code(tmp_path: Path, name: str, code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_document(f"{tmp_path}/{name}")
    assert refused.value.code == code


def test_byte_order_mark_is_not_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "draft.md").write_bytes(b"\xef\xbb\xbf# Title\n")
    assert read_document(tmp_path / "draft.md") == "# Title\n"


# Splitting


def test_document_is_split_into_sections_parts_and_sentences_with_their_lines() -> None:
    document = split(SAMPLE)
    assert [(section.heading, section.level, section.line) for section in document.sections] == [
        ("Orbit", 1, 4),
        ("Use", 2, 22),
    ]
    assert kinds(document) == [
        "heading", "paragraph", "item", "item", "quote", "code", "table", "heading", "paragraph", "definition",
    ]  # fmt: skip
    assert [(sentence.line, sentence.text) for sentence in document.parts[1].sentences] == [
        (6, "Orbit keeps time."),
        (6, "Dr. Low wrote version 3.5 of it, e.g. for `ls -l. And` more."),
    ]
    assert [(link.line, link.kind, link.target) for part in document.parts for link in part.links] == [
        (20, "link", "missing.md"),
        (24, "link", "#orbit"),
        (24, "reference", "docs/index.md"),
        (24, "bare", "https://example.org/a"),
        (26, "reference", "docs/index.md"),
    ]
    assert [(image.line, image.alt, image.target) for part in document.parts for image in part.images] == [
        (22, "logo", "logo.png")
    ]


def test_only_sentences_count_as_prose() -> None:
    assert [part.line for part in split(SAMPLE).prose] == [6, 9, 11]


def test_document_survives_a_json_round_trip() -> None:
    document = split(SAMPLE)
    assert Document.from_json(json.loads(json.dumps(document.to_json()))) == document


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_line_endings_change_nothing(ending: str) -> None:
    assert split(SAMPLE.replace("\n", ending)) == split(SAMPLE)


def test_missing_last_newline_changes_nothing() -> None:
    assert split(SAMPLE.rstrip("\n")) == split(SAMPLE)


def test_plain_text_is_one_section_and_its_indentation_is_not_code() -> None:
    document = split("A first line\nand a second.\n\n      An indented paragraph. It has two sentences.\n")
    assert [(section.level, len(section.parts)) for section in document.sections] == [(0, 2)]
    assert [sentence.line for part in document.prose for sentence in part.sentences] == [1, 4, 4]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See Fig. 2. It is 3.5 m, i.e. Small.", ["See Fig. 2.", "It is 3.5 m, i.e. Small."]),
        ("Is it? Yes! No... maybe.", ["Is it?", "Yes!", "No... maybe."]),
        ("Run `a. B`. Then https://a.org/b. Done", ["Run `a. B`.", "Then https://a.org/b.", "Done"]),
        ("J. Low, Ltd. He said “stop.” Then no. 5 came.", ["J. Low, Ltd.", "He said “stop.”", "Then no. 5 came."]),
        ("一句话。两句话！", ["一句话。", "两句话！"]),
        ("...", []),
    ],
    ids=["abbreviations", "marks", "code", "quotes", "chinese", "no word"],
)
def test_sentences_end_at_natural_boundaries(text: str, expected: list[str]) -> None:
    assert [sentence for _, sentence in sentences(text)] == expected


def test_fence_inside_a_list_item_ends_with_the_item() -> None:
    document = split("- run\n\n  ```sh\n  ls\n\n# Next\n\nWords.\n")
    assert kinds(document) == ["item", "code", "heading", "paragraph"]
    assert not document.parts[1].is_closed


def test_words_exclude_code_addresses_and_numbers_and_keep_marks_of_other_scripts() -> None:
    text = "It's state-of-the-art: `rm x`, 42 files, a@b.org, https://x.y हिन्दी"
    assert words(text) == ["It's", "state-of-the-art", "files", "हिन्दी"]


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("Hello, World!", "hello-world"), ("A `b_c()` & d", "a-b_c--d"), ("Überblick 2.0", "überblick-20"),
        ("हिन्दी पाठ", "हिन्दी-पाठ"), ("🎉 Party", "-party"),
    ],
)  # fmt: skip
def test_slugs_are_those_of_github(heading: str, expected: str) -> None:
    assert slug(heading) == expected

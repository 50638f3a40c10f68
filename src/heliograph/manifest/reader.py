"""Read a manifest: YAML 1.2 or JSON, bounded in size, depth and nodes, without aliases and tags.

The value is plain JSON. Every problem has its place in the file, and all are reported at once.
"""

# Requirements: S10, bad-input rows 1-12, 15, 27, 28.
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.manifest.document import Document, Place
from heliograph.manifest.document_builder import DocumentBuilder, Expression, Unreadable
from heliograph.manifest.environment import expand, is_expanded, missing_in
from heliograph.manifest.problems import ManifestProblem
from heliograph.manifest.scalars import plain_scalar, quoted_scalar
from heliograph.manifest.yaml_syntax import describe_syntax_error

if TYPE_CHECKING:
    from ruamel.yaml.events import Event

BYTES_MAX = 262_144

_UTF_8_MARK = b"\xef\xbb\xbf"
_OTHER_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_NOT_PRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def no_templates(pointer: str) -> bool:
    """Templates of no value: `${…}` is a variable everywhere."""
    return False


def parse_manifest(
    data: bytes, file: str, environment: Mapping[str, str] | None = None, templates: Callable[[str], bool] = no_templates,
    *, allows_secrets: bool = False,
) -> Document:  # fmt: skip
    """Read a manifest. Its problems are in the document; none is raised.

    file: its name in messages. environment: the variables that `${NAME}` and `${NAME:-default}` stand for; None keeps them as they are.
    templates: whether the value at a pointer is a template of its own, which is not expanded here.
    allows_secrets: whether a text that looks like a secret is a warning, and no error.
    """
    document = Document(safe_repr(file, 300))
    _read(document, data, environment, templates)
    if allows_secrets:
        document.problems[:] = [
            replace(each, is_warning=each.is_warning or each.code == "secret_literal") for each in document.problems
        ]
    return document


def _read(
    document: Document, data: bytes, environment: Mapping[str, str] | None, templates: Callable[[str], bool]
) -> None:
    """Read the text into the document, and add its problems."""
    builder = DocumentBuilder(document)
    try:
        _build(builder, document, _text_of(data, document))
    except Unreadable as stop:
        document.problems.append(stop.problem)
        document.value, document.is_readable = None, False
        return
    document.is_readable = True
    if environment is not None:
        for each in builder.expressions:
            if not templates(each.pointer):
                _expand(document, each, environment)


def _text_of(data: bytes, document: Document) -> str:
    """Decode and check the characters. Raises Unreadable."""
    if len(data) > BYTES_MAX:
        raise _unreadable(document, Place(), "manifest_too_large", f"the manifest has {len(data)} bytes, and the limit is {BYTES_MAX}",
                          "divide it, or store the data elsewhere")  # fmt: skip
    if data.startswith(_OTHER_MARKS):
        raise _unreadable(document, Place(), "encoding", "the text is UTF-16 or UTF-32, and must be UTF-8",
                          "save the file as UTF-8")  # fmt: skip
    try:
        text = data.removeprefix(_UTF_8_MARK).decode()
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8", "replace")
        offset = error.start + len(data) - len(error.object)
        raise _unreadable(document, _place_after(before), "encoding", f"the text is not UTF-8: byte 0x{error.object[error.start]:02x} "
                          f"at offset {offset}", "save the file as UTF-8") from None  # fmt: skip
    if found := _NOT_PRINTABLE.search(text):
        is_nul = found[0] == "\0"
        name = "a NUL character" if is_nul else f"the control character U+{ord(found[0]):04X}"
        raise _unreadable(document, _place_after(text[: found.start()]), "nul_character" if is_nul else "invalid_character",
                          f"the text contains {name}", "remove the character")  # fmt: skip
    return text


def _build(builder: DocumentBuilder, document: Document, text: str) -> None:
    """Give the events of the text to the builder, and check the document as a whole. Raises Unreadable."""
    from ruamel.yaml import YAML  # slow to import: most commands read no manifest
    from ruamel.yaml.events import DocumentStartEvent

    last, documents = Place(), 0
    events = YAML(typ="safe", pure=True).parse(text)
    while True:
        try:
            event = next(events, None)
        except Exception as error:  # the parser's errors, and those that its code raises for malformed escapes
            place, message, hint = describe_syntax_error(error, last)
            raise _unreadable(document, place, "yaml_syntax", message, hint) from None
        if event is None:
            break
        last = Place(event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, DocumentStartEvent):
            documents += 1
            if documents == 2:
                raise _unreadable(document, last, "yaml_multiple_documents", "the file has several documents, and a manifest is one",
                                  "divide the file at '---'")  # fmt: skip
            if event.version not in (None, (1, 2)):
                builder.report(ManifestProblem(document.file, 1, 1, "yaml_version", "the text is marked as another version of YAML than 1.2",
                                               "", "remove the line that begins with %YAML"))  # fmt: skip
        _add(builder, event, last)
    if not documents or document.value is None:
        raise _unreadable(document, Place(), "manifest_empty", f"{document.file} is empty", "write apiVersion and kind; helio schema lists the kinds")  # fmt: skip
    if not isinstance(document.value, dict):
        kind = "a list" if isinstance(document.value, list) else "a single value"
        raise _unreadable(document, document.values[""], "manifest_not_mapping", f"the manifest is {kind}, and must be an object of keys",
                          "begin with apiVersion and kind")  # fmt: skip


def _add(builder: DocumentBuilder, event: Event, place: Place) -> None:
    from ruamel.yaml.events import (
        AliasEvent,
        MappingEndEvent,
        MappingStartEvent,
        ScalarEvent,
        SequenceEndEvent,
        SequenceStartEvent,
    )

    if isinstance(event, AliasEvent):
        builder.alias(str(event.anchor), place)
    elif isinstance(event, ScalarEvent | MappingStartEvent | SequenceStartEvent):
        builder.check_properties(event.anchor, None if event.tag is None else str(event.tag), place)
        if isinstance(event, ScalarEvent):
            builder.scalar(event.value, place, is_plain=bool(event.implicit[0]))
        else:
            builder.begin(dict if isinstance(event, MappingStartEvent) else list, place)
    elif isinstance(event, MappingEndEvent | SequenceEndEvent):
        builder.end()


def _expand(document: Document, found: Expression, environment: Mapping[str, str]) -> None:
    """Replace the variables of a text, or report those that are missing."""
    written = found.owner[found.key]
    if not is_expanded(written):
        return
    if names := missing_in(written, environment):
        is_one = len(names) == 1
        problem = document.problem(
            "env_missing", f"the variable{'' if is_one else 's'} {', '.join(names)} {'is' if is_one else 'are'} not set", found.pointer,
            f"set {'it' if is_one else 'them'}, or give a default: ${{{names[0]}:-default}}")  # fmt: skip
        document.problems.append(replace(problem, binding=names[0]))
        return
    document.replaced[found.pointer] = written
    text = expand(written, environment)
    try:
        value: Any = plain_scalar(text) if found.is_plain else quoted_scalar(text)
    except InvalidInput as error:
        document.problems.append(
            document.problem(
                error.code, f"the value of {written}: {error.message}", found.pointer, "set it to another value"
            )
        )
        return
    found.owner[found.key] = value


def kind_of(document: Document) -> str | None:
    """Return the `kind` of a manifest; None if it has none."""
    kind = document.value.get("kind") if isinstance(document.value, dict) else None
    return kind if isinstance(kind, str) else None


def _unreadable(document: Document, place: Place, code: str, message: str, hint: str) -> Unreadable:
    return Unreadable(ManifestProblem(document.file, *place, code, message, "", hint))


def _place_after(text: str) -> Place:
    """Return the place at which a text ends."""
    lines = _LINE_END.split(text)
    return Place(len(lines), len(lines[-1]) + 1)

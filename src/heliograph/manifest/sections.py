"""Steps that all kinds of manifests share: the kind and version, the schema, and the parsers of the sections."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from heliograph.errors import InvalidInput
from heliograph.json_pointer import pointer as join
from heliograph.json_pointer import tokens_of
from heliograph.manifest.document import Document
from heliograph.manifest.environment import other_expressions_in
from heliograph.manifest.problems import ManifestProblem
from heliograph.manifest.schemas import schema_of_kind
from heliograph.manifest.validation import validate

T = TypeVar("T")


def problems_of_schema(document: Document, kind: str) -> list[ManifestProblem]:
    """Return the problems of a document under the schema of a kind. One with another kind has no other problem."""
    if not document.is_readable:
        return []
    found = validate(document, schema_of_kind(kind), name=f"the {kind}")
    of_another_kind = [each for each in found if each.code == "unknown_kind"]
    return of_another_kind or found


def read_section(
    document: Document, pointer: str, read: Callable[[Any, str], T], found: list[ManifestProblem]
) -> T | None:
    """Return a part of the document that its parser read. A problem is added to `found`; a part that has one is not read.

    None for a part that is missing or has a problem.
    """
    value = document.value_at(pointer) if document.is_readable else None
    if value is None or has_errors(found, pointer):
        return None
    try:
        return read(value, pointer)
    except InvalidInput as error:
        found.append(document.problem_of(error))
        return None


def has_errors(problems: Iterable[ManifestProblem], pointer: str) -> bool:
    """Whether a value, or a part of it, has an error."""
    return any(
        not each.is_warning and (each.pointer == pointer or each.pointer.startswith(f"{pointer}/")) for each in problems
    )


def misplaced_expressions(document: Document, templates: Callable[[str], bool]) -> list[ManifestProblem]:
    """Return a problem for each text that has an expression at a place where none is evaluated."""
    return [
        document.problem("expression_not_allowed", f"{expressions[0]} is not evaluated here", pointer,
                         "remove it; the payloads of control_signals may have expressions, and $${ is a literal ${")
        for pointer, text in _texts(document.value, "")
        if pointer not in document.replaced and not templates(pointer) and (expressions := other_expressions_in(text))
    ]  # fmt: skip


def _texts(value: Any, pointer: str) -> list[tuple[str, str]]:
    """Return all texts of a value with their pointers."""
    if isinstance(value, str):
        return [(pointer, value)]
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    return [found for key, item in items for found in _texts(item, join(pointer, key))]


def is_payload_of_signal(pointer: str) -> bool:
    """Whether a pointer leads into the payload of a control signal, which is a template."""
    tokens = tokens_of(pointer)
    return len(tokens) > 2 and tokens[0] == "control_signals" and tokens[2] == "payload"

"""Validate a manifest against a JSON Schema: all problems, each with its place, what the schema expects, and the nearest name.

References to other documents are never fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any

from heliograph.definitions.forms import validator_of
from heliograph.error_text import safe_repr
from heliograph.json_pointer import pointer as join
from heliograph.json_pointer import tokens_of
from heliograph.manifest.branches import nearest_branch, types_of_alternatives
from heliograph.manifest.document import Document, dotted
from heliograph.manifest.problems import PROBLEMS_MAX, ManifestProblem
from heliograph.manifest.schema_lookup import subschema_at

_LISTED_MAX = 20
_TYPES = {
    "object": "an object", "array": "a list", "string": "a text", "number": "a number", "integer": "a whole number",
    "boolean": "true or false", "null": "null",
}  # fmt: skip
_ENUM_CODES = {"/apiVersion": "unsupported_version", "/kind": "unknown_kind"}


def validate(document: Document, schema: Mapping[str, Any], *, name: str) -> list[ManifestProblem]:
    """Return the problems of a manifest under a schema, up to 50. A value with a problem of its text gets no second one.

    name: of the whole in messages, for example "the RuntimeSpec". Raises InvalidInput (`invalid_schema`).
    """
    if not document.is_readable:
        return []
    return _Validation(document, schema, name).problems()


class _Validation:
    """One document and one schema."""

    def __init__(self, document: Document, schema: Mapping[str, Any], name: str):
        self._document = document
        self._schema = schema
        self._name = name
        self._validator = validator_of(f"the schema of {name}", schema, "")

    def problems(self) -> list[ManifestProblem]:
        broken = {problem.pointer for problem in self._document.problems}
        errors = list(islice(self._leaves(self._validator.iter_errors(self._document.value)), PROBLEMS_MAX))
        misspelt = {pointer for error in errors for pointer in self._missing_but_misspelt(error, errors)}
        found = [problem for error in errors for problem in self._described(error)]
        return [
            each for each in dict.fromkeys(found) if each.pointer not in misspelt and (each.pointer not in broken or not each.pointer)
        ]  # fmt: skip

    def _leaves(self, errors: Iterable[Any]) -> Iterator[Any]:
        """Yield the errors; in place of one about alternatives, those of the alternative that was probably meant."""
        for error in errors:
            branch = nearest_branch(error)
            if branch is None:
                yield error
            else:
                yield from self._leaves(branch)

    def _missing_but_misspelt(self, error: Any, errors: list[Any]) -> Iterator[str]:
        """Yield the pointer of a missing key if an unknown key beside it is probably the same, misspelt."""
        if type(error.kind).__name__ != "Required":
            return
        for other in errors:
            unknown = _unknown_keys(other)
            if (
                unknown
                and other.instance_path == error.instance_path
                and get_close_matches(error.kind.property, unknown, 1)
            ):
                yield join("", *error.instance_path, error.kind.property)

    def _described(self, error: Any) -> Iterator[ManifestProblem]:
        pointer = join("", *error.instance_path)
        kind = type(error.kind).__name__
        if kind == "Required":
            key = error.kind.property
            yield self._document.problem("required_field", f"{self._what(pointer)} has no '{safe_repr(key)}'", join(pointer, key),
                                         self._hint_for_missing(pointer, error))  # fmt: skip
        elif unknown := _unknown_keys(error):
            yield from (self._unknown_field(error, pointer, key) for key in unknown)
        elif kind == "PropertyNames":
            yield from (self._document.problem("invalid_identifier", f"a key of {self._what(pointer)} is malformed: {_rule_of(each)}",
                                               join(pointer, str(each.instance)), "rename the key", at_key=True)
                        for each in [error.kind.error])  # fmt: skip
        else:
            code, rule, hint = self._expected(error, kind, pointer)
            yield self._document.problem(code, f"{self._what(pointer)} {rule}", pointer, hint)

    def _expected(self, error: Any, kind: str, pointer: str) -> tuple[str, str, str]:
        """Return the code, the rule and the next step of a problem with a value."""
        value, given = error.instance, self._document.text_of(pointer, error.instance)
        if types := error.kind.types if kind == "Type" else types_of_alternatives(error):
            return "wrong_type", f"must be {_types(types)}, not {given}", _type_hint(types, value)
        if kind in ("Enum", "Constant"):
            options = error.kind.options if kind == "Enum" else [error.kind.expected_value]
            return self._one_of(pointer, given, value, options)
        code = self._code_of(error)
        if kind == "Pattern":
            return (
                code or "invalid_format",
                f"does not have the form {error.kind.pattern}: {given}",
                self._example(error),
            )
        if kind == "Format":
            return code or "invalid_format", f"must be a {error.kind.format}, not {given}", self._example(error)
        rule = _rule_of(error)
        return (
            code or _CODES.get(kind, "invalid_value"),
            f"{rule}, not {given}" if kind in _BOUNDS else rule,
            self._example(error),
        )

    def _one_of(self, pointer: str, given: str, value: Any, options: list[Any]) -> tuple[str, str, str]:
        texts = [str(option) for option in options]
        near = (
            get_close_matches(value, texts, 1)
            if isinstance(value, str) and pointer not in self._document.replaced
            else []
        )
        listed = ", ".join(safe_repr(text) for text in texts[:_LISTED_MAX]) + (
            ", …" if len(texts) > _LISTED_MAX else ""
        )
        rule = f"must be {'one of ' if len(texts) > 1 else ''}{listed}, not {given}"
        return (
            _ENUM_CODES.get(pointer, "invalid_enum"),
            rule,
            f"did you mean {near[0]}?" if near else f"write {'one of these' if len(texts) > 1 else texts[0]}",
        )

    def _unknown_field(self, error: Any, pointer: str, key: str) -> ManifestProblem:
        owner = subschema_at(self._schema, error.schema_path[:-1])
        known = list(owner.get("properties", {}))
        near = get_close_matches(key, known, 1)
        if near:
            hint = f"did you mean {near[0]}?"
        else:
            hint = f"its fields are {', '.join(known[:_LISTED_MAX])}" if known else "remove it"
        return self._document.problem("unknown_field", f"{self._what(pointer)} has no field '{safe_repr(key)}'", join(pointer, key), hint,
                                      at_key=True)  # fmt: skip

    def _hint_for_missing(self, pointer: str, error: Any) -> str:
        """Return the next step after a missing key: its line, if the schema allows only one value."""
        owner = subschema_at(self._schema, error.schema_path[:-1])
        only = owner.get("properties", {}).get(error.kind.property, {}).get("const")
        return f"add {error.kind.property}: {only}" if isinstance(only, str) else "add it"

    def _code_of(self, error: Any) -> str | None:
        """Return the code that the schema gives to a malformed value, as `x-code`."""
        code = subschema_at(self._schema, error.schema_path[:-1]).get("x-code")
        return code if isinstance(code, str) else None

    def _example(self, error: Any) -> str:
        examples = subschema_at(self._schema, error.schema_path[:-1]).get("examples")
        return (
            f"write {safe_repr(examples[0])}, for example"
            if isinstance(examples, list) and examples
            else "correct the value"
        )

    def _what(self, pointer: str) -> str:
        return f"'{dotted(pointer)}'" if tokens_of(pointer) else self._name


_BOUNDS = ("Minimum", "Maximum", "ExclusiveMinimum", "ExclusiveMaximum", "MultipleOf")
_CODES = {
    **dict.fromkeys((*_BOUNDS, "MinLength", "MaxLength", "MinItems", "MaxItems", "MinProperties", "MaxProperties"), "out_of_range"),
    "UniqueItems": "duplicate_item", "FalseSchema": "not_allowed", "Not": "not_allowed", "OneOfMultipleValid": "ambiguous",
    "Referencing": "invalid_schema",
}  # fmt: skip
_RULES = {
    "Minimum": "must be at least {}", "Maximum": "must be at most {}", "ExclusiveMinimum": "must be above {}",
    "ExclusiveMaximum": "must be below {}", "MinLength": "must have at least {} characters",
    "MaxLength": "must have at most {} characters", "MinItems": "must have at least {} items", "MaxItems": "must have at most {} items",
    "MinProperties": "must have at least {} fields", "MaxProperties": "must have at most {} fields",
    "MultipleOf": "must be a multiple of {}", "UniqueItems": "has an item twice", "FalseSchema": "is not allowed here",
    "Not": "has a value that is not allowed here", "OneOfMultipleValid": "matches several alternatives, and must match one",
    "AnyOf": "matches none of the alternatives", "OneOfNotValid": "matches none of the alternatives",
    "Pattern": "does not have the form {}",
}  # fmt: skip
_LIMITS = ("limit", "multiple_of", "pattern")


def _rule_of(error: Any) -> str:
    """Return the rule that a value breaks, without the value."""
    rule = _RULES.get(type(error.kind).__name__, "does not match the schema")
    limit = next((getattr(error.kind, name) for name in _LIMITS if hasattr(error.kind, name)), None)
    return rule.format(limit)


def _unknown_keys(error: Any) -> list[str]:
    is_unknown = type(error.kind).__name__ in ("AdditionalProperties", "UnevaluatedProperties")
    return [str(key) for key in error.kind.unexpected] if is_unknown else []


def _types(types: list[str]) -> str:
    return " or ".join(_TYPES.get(each, each) for each in types)


def _type_hint(types: list[str], value: Any) -> str:
    """Return the next step after a value of another type."""
    if "string" in types and isinstance(value, bool | int | float):
        return "quote it"
    if isinstance(value, str) and value in ("true", "false") and "boolean" in types:
        return "remove the quotes"
    if isinstance(value, str) and {"number", "integer"} & set(types):
        return "write a number without quotes and unit" if value[:1].isdigit() else "write a number"
    return f"write {_types(types)}"

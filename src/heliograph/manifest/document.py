"""A manifest as it was read: its value as plain JSON, and the place in the file of every key and value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import HeliographError
from heliograph.json_pointer import tokens_of, value_at
from heliograph.manifest.problems import ManifestProblem
from heliograph.types import Json

_TEXT_MAX = 60


class Place(NamedTuple):
    """A place in a file. line, column: from 1."""

    line: int = 1
    column: int = 1


@dataclass
class Document:
    """A manifest that was read. Pointers are JSON pointers: `/control_signals/tool_call`, and an empty text for the whole.

    file: its name in messages. value: plain JSON; None if the text could not be read as a whole (`is_readable`).
    problems: those of the text itself: duplicate keys, secrets, missing variables. They may be errors although the value is readable.
    replaced: by pointer, what messages show in place of a value: the expression of a variable, or stars for a secret.
    """

    file: str
    value: Any = None
    is_readable: bool = False
    problems: list[ManifestProblem] = field(default_factory=list)
    values: dict[str, Place] = field(default_factory=dict)
    keys: dict[str, Place] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)

    def position_of(self, pointer: str) -> Place:
        """Return the place of a value, or that of the innermost object or list around it that exists."""
        while pointer and pointer not in self.values:
            pointer = pointer.rpartition("/")[0]
        return self.values.get(pointer, Place())

    def key_position_of(self, pointer: str) -> Place:
        """Return the place of the key of a value; of a list's item, the place of the item."""
        return self.keys.get(pointer) or self.position_of(pointer)

    def problem(
        self, code: str, message: str, pointer: str = "", hint: str = "", *, at_key: bool = False, is_warning: bool = False
    ) -> ManifestProblem:  # fmt: skip
        """Return a problem of the value at a pointer. at_key: it is about the key, for example an unknown one."""
        place = self.key_position_of(pointer) if at_key else self.position_of(pointer)
        return ManifestProblem(self.file, *place, code, message, pointer, hint, is_warning)

    def problem_of(self, error: HeliographError, prefix: str = "", *, is_warning: bool = False) -> ManifestProblem:
        """Return the problem that a reader of a value raised. prefix: the beginning of the error's path that stands for the document.

        A message ends with the next step, after a semicolon; it becomes the hint, unless the error has one.
        """
        pointer = (error.path or "").removeprefix(prefix)
        message, hint = self._without_hidden(error.message, pointer), error.hint or ""
        if pointer in self.replaced:  # a parser quotes parts of a value
            message, hint = f"the value of {self.replaced[pointer]} is not accepted", ""
        elif not hint and "; " in message:
            message, _, hint = message.rpartition("; ")
        return self.problem(error.code, message, pointer if pointer.startswith("/") else "",
                            hint or _NEXT_STEPS.get(error.code, _NEXT_STEP), at_key=error.code == "unknown_field",
                            is_warning=is_warning)  # fmt: skip

    def text_of(self, pointer: str, value: Json) -> str:
        """Return a value for a message: in JSON's spelling, shortened, and never a secret or the value of a variable."""
        if pointer in self.replaced:
            return self.replaced[pointer]
        if isinstance(value, dict | list):
            return "an object" if isinstance(value, dict) else "a list"
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        return safe_repr(repr_of(value), _TEXT_MAX)

    def _without_hidden(self, message: str, pointer: str) -> str:
        """Return a message without the values below a pointer that messages must not show."""
        for place, instead in self.replaced.items():
            if place.startswith(f"{pointer}/"):
                text = str(self.value_at(place))
                message = message.replace(text, instead) if text else message
        return message

    def value_at(self, pointer: str) -> Any:
        """Return the value at a pointer; None if there is none."""
        return value_at(self.value, pointer)


_NEXT_STEP = "correct the value; helio schema describes it"
_NEXT_STEPS = {
    "wrong_type": "write a value of the type that the message names",
    "out_of_range": "write a value in the range that the message names",
    "no_effect": "remove it",
    "jaeger_thrift_endpoint": "write the endpoint of OTLP, which has port 4318 and the path /v1/traces",
    "unknown_expression": "write one of the expressions that the message names",
}


def dotted(pointer: str) -> str:
    """Return a pointer as people write it: `routes[0].match`."""
    text = ""
    for token in tokens_of(pointer):
        text += f"[{token}]" if token.isdigit() else f".{safe_repr(token, _TEXT_MAX)}"
    return text.removeprefix(".")

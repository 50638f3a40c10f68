"""Read the fields of a manifest by their pointers, and remember which ones: what nobody has read gets a warning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from heliograph.json_pointer import escaped, tokens_of
from heliograph.manifest.document import Document, dotted
from heliograph.manifest.environment import expand, missing_in
from heliograph.manifest.problems import ManifestProblem
from heliograph.types import Json

_SIMILARITY_MIN = 0.75  # of a misspelt key
_DIVIDED = ("", "/spec", "/extensions")  # each key below gets a warning of its own


class ManifestFields:
    """The fields of one manifest. environment: the variables that `expanded` inserts.

    problems: a warning for each field of the wrong type, and an error for each variable without a value.
    """

    def __init__(self, document: Document, environment: Mapping[str, str]):
        self._document = document
        self._environment = environment
        self._read: set[str] = set()
        self._asked: set[str] = set()  # also the objects and lists whose parts are read
        self.problems: list[ManifestProblem] = []

    def value(self, pointer: str) -> Json:
        """Return the value at a pointer; None if there is none. An object or a list counts as read only where its parts are read."""
        self._asked.add(pointer)
        value: Json = self._document.value_at(pointer)
        if not isinstance(value, dict | list):
            self._read.add(pointer)
        return value

    def given(self, pointer: str) -> Json:
        """Return the value at a pointer without counting it as read."""
        self._asked.add(pointer)
        value: Json = self._document.value_at(pointer)
        return value

    def whole(self, pointer: str) -> Json:
        """Return the value at a pointer, which counts as read with all of its parts: the caller carries out every one of them."""
        self._read.add(pointer)
        value: Json = self._document.value_at(pointer)
        return value

    def string(self, *pointers: str) -> str | None:
        """Return the first text at the pointers that is not empty. Other values stay unread."""
        for pointer in pointers:
            value = self.given(pointer)
            if isinstance(value, str) and value:
                self._read.add(pointer)
                return value
        return None

    def text(self, *pointers: str) -> str | None:
        """Return the first text at the pointers that is not empty."""
        return next(filter(None, (self._typed(each, str, "a text") for each in pointers)), None)

    def expanded(self, *pointers: str, is_optional: bool = False) -> str | None:
        """Return the first text at the pointers, with the values of its environment variables.

        is_optional: a variable without a value is a warning, because the operator may name what it stands for.
        """
        for pointer in pointers:
            if (text := self.text(pointer)) is None:
                continue
            if missing := missing_in(text, self._environment):
                problem = self._document.problem(
                    "env_missing", f"{dotted(pointer)} uses the environment variable {missing[0]}, which has no value", pointer,
                    f"set {missing[0]}, or write a default: ${{{missing[0]}:-…}}", is_warning=is_optional,
                )  # fmt: skip
                self.problems.append(replace(problem, binding=missing[0]))
                return None
            return expand(text, self._environment)
        return None

    def number(self, *pointers: str, low: float, high: float, whole: bool = False) -> Any:
        """Return the first number at the pointers, also from an environment variable. One outside of the range is an error."""
        for pointer in pointers:
            value = self.value(pointer)
            if isinstance(value, str):
                value = self._number_of(self.expanded(pointer))
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer() and whole:
                value = int(value)
            kind = int if whole else int | float
            if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
                self.reject(
                    "out_of_range", f"{dotted(pointer)} must be a {'whole ' if whole else ''}number from {low:g} to {high:g}, not "
                    f"{self._document.text_of(pointer, self._document.value_at(pointer))}", pointer, "write a number in this range",
                )  # fmt: skip
                return None
            return value
        return None

    def mapping(self, pointer: str) -> Mapping[str, Json]:
        """Return the object at a pointer without counting it as read; empty if there is none."""
        self._asked.add(pointer)
        value = self._document.value_at(pointer)
        return value if isinstance(value, dict) else {}

    def items(self, pointer: str) -> list[tuple[str, Json]]:
        """Return the items of the list at a pointer, each with its own pointer, without counting them as read."""
        self._asked.add(pointer)
        value = self._document.value_at(pointer)
        return [(f"{pointer}/{n}", each) for n, each in enumerate(value)] if isinstance(value, list) else []

    def texts(self, pointer: str) -> list[str]:
        """Return the texts of the list at a pointer. Its other items stay unread."""
        return [text for place, _ in self.items(pointer) if (text := self.string(place)) is not None]

    def flag(self, *pointers: str) -> bool:
        """Whether a value at the pointers is true. One that is neither true nor false is an error: it may be meant as true."""
        found = [(pointer, self.whole(pointer)) for pointer in pointers]
        for pointer, value in found:
            if value is not None and not isinstance(value, bool):
                self.reject("wrong_type", f"{dotted(pointer)} must be true or false, not "
                            f"{self._document.text_of(pointer, value)}", pointer, "write true or false")  # fmt: skip
        return any(value is True for _, value in found)

    def warn(self, code: str, message: str, pointer: str, hint: str = "") -> None:
        self.problems.append(self._document.problem(code, message, pointer, hint, at_key=True, is_warning=True))

    def drop(self, code: str, message: str, pointer: str, hint: str = "") -> None:
        """Warn of a value that is not carried out as a whole."""
        self._read.add(pointer)
        self.warn(code, message, pointer, hint)

    def reject(self, code: str, message: str, pointer: str, hint: str = "") -> None:
        self._read.add(pointer)
        self.problems.append(self._document.problem(code, message, pointer, hint))

    def unread(self, is_information: Callable[[str], bool]) -> Iterator[str]:
        """Yield the pointers of the outermost values that nobody has read, without those that only inform people."""
        yield from self._unread(self._document.value, "", is_information)

    def similar_key(self, pointer: str) -> str | None:
        """Return the key that was probably meant at a pointer that nobody has read; None if no key is similar."""
        parent, _, key = pointer.rpartition("/")
        below = f"{parent}/"
        asked = self._read | self._asked
        known = {each.removeprefix(below).partition("/")[0] for each in asked if each.startswith(below)}
        near = get_close_matches(
            tokens_of(f"/{key}")[0], sorted(known - self.mapping(parent).keys()), 1, _SIMILARITY_MIN
        )
        return near[0] if near else None

    def _unread(self, value: Json, pointer: str, is_information: Callable[[str], bool]) -> Iterator[str]:
        if pointer in self._read or is_information(pointer):
            return
        below = f"{pointer}/"
        is_divided = pointer in _DIVIDED or any(each.startswith(below) for each in self._read)
        if is_divided and isinstance(value, dict):
            for key, each in value.items():
                yield from self._unread(each, below + escaped(key), is_information)
        elif is_divided and isinstance(value, list):
            for n, each in enumerate(value):
                yield from self._unread(each, f"{below}{n}", is_information)
        elif value not in (None, {}, []) or pointer not in self._asked:
            yield pointer

    def _typed(self, pointer: str, kind: type, name: str) -> Any:
        value = self.value(pointer)
        if value is None or isinstance(value, kind):
            return value
        self.drop("wrong_type", f"{dotted(pointer)} is not {name}, so it has no effect", pointer, f"write {name}")
        return None

    @staticmethod
    def _number_of(text: str | None) -> Any:
        try:
            return None if text is None else float(text)
        except ValueError:
            return text

"""Build the value of a manifest from the events of a YAML parser, with the place of each key and value.

The builder needs no recursion and never expands an alias, so its cost is bounded by the number of nodes. It reports all problems
that leave the rest readable, and raises `Unreadable` for one that does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.json_pointer import pointer as join
from heliograph.manifest.document import Document, Place
from heliograph.manifest.problems import PROBLEMS_MAX, ManifestProblem
from heliograph.manifest.scalars import Scalar, plain_scalar, quoted_scalar
from heliograph.manifest.secret_literals import is_secret_literal

DEPTH_MAX = 32
NODES_MAX = 10_000
_STARS = "***"
_NO_ALIASES = "yaml_aliases_not_allowed"


class Unreadable(Exception):
    """A problem after which the rest of the text is not read."""

    def __init__(self, problem: ManifestProblem):
        super().__init__(problem.message)
        self.problem = problem


@dataclass(slots=True)
class _Open:
    """An object or list whose end has not come yet. pointer: None inside a value that is dropped, that of a repeated key.

    key: the key whose value comes next.
    """

    value: dict[str, Any] | list[Any]
    pointer: str | None
    key: str | None = None
    is_dropped: bool = False


@dataclass(frozen=True, slots=True)
class Expression:
    """A text with a `${`. owner, key: where it stands. is_plain: it has no quotes, so the expanded text may be a number."""

    owner: dict[str, Any] | list[Any]
    key: Any
    pointer: str
    is_plain: bool


class DocumentBuilder:
    """Fills a document from the events of a parser, in their order."""

    def __init__(self, document: Document):
        self._document = document
        self._open: list[_Open] = []
        self._nodes = 0
        self.expressions: list[Expression] = []

    def begin(self, kind: type[dict[str, Any]] | type[list[Any]], place: Place) -> None:
        """Add the start of an object or a list."""
        if self._expects_key:
            raise Unreadable(self._problem("key_not_string", "a key is an object or a list, and must be a text", place,
                                           "write a text as the key"))  # fmt: skip
        if len(self._open) == DEPTH_MAX:
            raise Unreadable(self._problem("yaml_too_deep", f"more than {DEPTH_MAX} objects and lists are nested inside each other", place,
                                           "make the manifest flatter"))  # fmt: skip
        value = kind()
        pointer = self._add(value, place)
        self._open.append(_Open(value, pointer))

    def end(self) -> None:
        self._open.pop()

    def scalar(self, text: str, place: Place, *, is_plain: bool) -> None:
        """Add a key, or a value that is no object or list."""
        if self._expects_key:
            self._key(text, place, is_plain=is_plain)
            return
        value: Scalar = None
        name, error = self._name, None
        try:
            value = plain_scalar(text) if is_plain else quoted_scalar(text)
        except InvalidInput as raised:
            error = raised
        owner = self._open[-1] if self._open else None
        if is_plain and not text and owner is not None and owner.pointer is not None and owner.key is not None:
            place = self._document.keys[join(owner.pointer, owner.key)]  # the parser gives the place of what comes next
        pointer = self._add(value, place)
        if error is not None:
            self.report(
                self._problem(
                    error.code, f"{name}: {error.message}", place, error.hint or "correct the value", pointer or ""
                )
            )
        if pointer is None or not isinstance(value, str):
            return
        if is_secret_literal(self._key_around(owner), value):
            self._document.replaced[pointer] = _STARS
            self.report(self._problem("secret_literal", f"'{pointer}' is a secret in clear text", place,
                                      "write secret://NAME or ${NAME}, and set the variable; if it is no secret, --allow-secret-literals "
                                      "accepts it", pointer))  # fmt: skip
        elif owner is not None and "${" in value:
            key = len(owner.value) - 1 if isinstance(owner.value, list) else next(reversed(owner.value))
            self.expressions.append(Expression(owner.value, key, pointer, is_plain))

    def alias(self, name: str, place: Place) -> None:
        """Add a reference to another node. Aliases are not allowed: a few of them expand to any size."""
        is_key = self._expects_key
        pointer = None
        if is_key:  # what it stands for is unknown, so the key and its value are dropped
            self._count(place)
            self._open[-1].key, self._open[-1].is_dropped = "*", True
        else:
            pointer = self._add(None, place)
        self.report(
            self._problem(
                _NO_ALIASES, f"*{safe_repr(name)} is an alias", place, "write the value itself", pointer or ""
            )
        )

    def check_properties(self, anchor: str | None, tag: str | None, place: Place) -> None:
        """Report an anchor or a tag before a node."""
        if anchor is not None:
            self.report(self._problem(_NO_ALIASES, f"&{safe_repr(anchor)} is an anchor, which only aliases need", place,
                                      "remove it"))  # fmt: skip
        if tag is not None:
            self.report(self._problem("yaml_tag_not_allowed", f"{safe_repr(tag)} is a tag", place,
                                      "remove it; quote a value that must be a text"))  # fmt: skip

    def report(self, problem: ManifestProblem) -> None:
        """Add a problem. Raises Unreadable if there are too many."""
        if len(self._document.problems) >= PROBLEMS_MAX:
            raise Unreadable(problem)
        self._document.problems.append(problem)

    @property
    def _expects_key(self) -> bool:
        last = self._open[-1] if self._open else None
        return last is not None and isinstance(last.value, dict) and last.key is None

    @property
    def _name(self) -> str:
        """The key or the index at which the next value stands."""
        if not self._open:
            return "the manifest"
        last = self._open[-1]
        return f"'{safe_repr(last.key)}'" if last.key is not None else f"item {len(last.value)}"

    def _key(self, text: str, place: Place, *, is_plain: bool) -> None:
        self._count(place)
        owner = self._open[-1]
        assert isinstance(owner.value, dict)
        try:
            owner.key = quoted_scalar(text)
        except InvalidInput as error:
            raise Unreadable(self._problem(error.code, f"a key: {error.message}", place, "correct the key")) from None
        if is_plain and text == "<<":
            self.report(self._problem("yaml_merge_not_allowed", "'<<' merges objects in YAML 1.1, and is not a part of YAML 1.2", place,
                                      "write the keys themselves"))  # fmt: skip
        if owner.pointer is None:
            return
        pointer = join(owner.pointer, owner.key)
        if owner.key in owner.value:
            first = self._document.keys[pointer]
            owner.is_dropped = True
            self.report(self._problem("yaml_duplicate_key", f"the key '{safe_repr(owner.key)}' is given twice, in line {first.line} and "
                                      f"in line {place.line}", place, "remove one of them", pointer))  # fmt: skip
        else:
            self._document.keys[pointer] = place

    def _add(self, value: Any, place: Place) -> str | None:
        """Add a value to the object or list that is open, and return its pointer."""
        self._count(place)
        if not self._open:
            self._document.value = value
            self._document.values[""] = place
            return ""
        owner = self._open[-1]
        pointer = None
        if isinstance(owner.value, list):
            if owner.pointer is not None:
                pointer = join(owner.pointer, len(owner.value))
            owner.value.append(value)
        else:
            assert owner.key is not None
            if not owner.is_dropped:
                owner.value[owner.key] = value
                pointer = None if owner.pointer is None else join(owner.pointer, owner.key)
            owner.key, owner.is_dropped = None, False
        if pointer is not None:
            self._document.values[pointer] = place
        return pointer

    def _key_around(self, owner: _Open | None) -> str:
        """The key at which the last value stands; for an item of a list, the key of the list."""
        if owner is None or owner.pointer is None:
            return ""
        if isinstance(owner.value, dict):
            return next(reversed(owner.value))
        return owner.pointer.rpartition("/")[2]

    def _count(self, place: Place) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise Unreadable(self._problem("yaml_too_many_nodes", f"the manifest has more than {NODES_MAX} keys and values", place,
                                           "divide it, or store the data elsewhere"))  # fmt: skip

    def _problem(self, code: str, message: str, place: Place, hint: str, pointer: str = "") -> ManifestProblem:
        return ManifestProblem(self._document.file, *place, code, message, pointer, hint)

"""The headers of the kernel's functions and the reference list precisely the keys of each request."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from heliograph.request_items import ActivationItem, CardItem, CauseItem, ReactionItem, SignalItem, StopsItem
from heliograph.requests import REQUESTS
from heliograph.testing.kernel.keys import shape_of


def headers() -> dict[str, str]:
    """The comment above each public function, as one line."""
    found = {}
    for path in sorted(files("heliograph.ledger").joinpath("sql/kernel").iterdir(), key=lambda f: f.name):
        text = path.read_text("utf-8")
        for match in re.finditer(r"((?:^--.*\n)+)create function heliograph\.([a-z]\w*)\(", text, re.MULTILINE):
            found[match[2]] = " ".join(line.lstrip("-").strip() for line in match[1].splitlines())
    return found


def documented(text: str) -> dict[str, Any]:
    """`{a, b: [c], d: {e, f}}` as {name: keys below, or None}."""
    tokens = re.findall(r"\w+|[{}\[\],:]", text)

    def value() -> Any:
        token = tokens.pop(0)
        if token == "[":
            inner = value()
            assert tokens.pop(0) == "]"
            return inner
        if token != "{":
            return None
        keys: dict[str, Any] = {}
        while tokens[0] != "}":
            name = tokens.pop(0)
            keys[name] = None
            if tokens[0] == ":":
                tokens.pop(0)
                keys[name] = value()
            if tokens[0] == ",":
                tokens.pop(0)
        tokens.pop(0)
        return keys

    return dict(value())


def declared(kind: Any) -> dict[str, Any]:
    """The keys of a declaration, as `documented` reads them. Objects of several functions are explained in one place."""
    shared = (SignalItem, ReactionItem, ActivationItem, CauseItem, StopsItem)
    return {key: None if inner is None or inner in shared else declared(inner) for key, inner in shape_of(kind).items()}


@pytest.mark.parametrize("function", REQUESTS)
def test_header_documents_precisely_the_keys_of_a_request(function: str) -> None:
    header = headers()[function]
    if function == "fail_unclaimable":
        assert "claim" in header.partition("p_targets: ")[2]
        return
    match = re.search(r"p_(?:items|runs|messages|targets|tools): (?:\[\w+\], or )?\[?(\{.*)", header)
    assert match, header
    found, expected = documented(match[1]), declared(REQUESTS[function])
    assert found.keys() == expected.keys()
    for key, inner in expected.items():
        if inner is not None and found[key] is not None:
            assert found[key] == inner, key


def test_reference_lists_the_keys_of_shared_objects() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/reference/requests.md").read_text(encoding="utf-8")
    shared = {"draft: a signal": SignalItem, "card": CardItem, "reaction": ReactionItem, "activation": ActivationItem,
              "cause: .*": CauseItem, "stops": StopsItem}  # fmt: skip
    for name, kind in shared.items():
        [row] = re.findall(rf"^\| {name} \| (.*) \|$", page, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) == shape_of(kind).keys(), name

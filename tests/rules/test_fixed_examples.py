"""The examples of properties do not depend on the modules that earlier tests have loaded."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def drawn() -> list[str]:
    found = list[str]()

    @settings(max_examples=200)
    @given(st.text())
    def draw(text: str) -> None:
        found.append(text)

    draw()
    return found


def test_examples_are_the_same_after_another_module_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = drawn()
    file = tmp_path / "loaded_later.py"
    file.write_text("\n".join(f"text_{number} = 'only here {number}'" for number in range(1000)))
    module = ModuleType("loaded_later")
    module.__file__ = str(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "loaded_later", module)
    assert drawn() == before

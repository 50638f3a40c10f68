"""The code table: each code is written once in Python, and the kernel uses no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from heliograph import codes, errors
from heliograph.codes import CODES, REASONS, RUN_CODES
from heliograph.errors import HeliographError

ROOT = Path(codes.__file__).parent
KNOWN = {code.code for code in CODES} | {code for code, _ in RUN_CODES} | {reason for reason, _ in REASONS}
WITH_ENVIRONMENTS = {
    "config.py",
    "cli/agent_manifests.py",
    "embedded/process.py",
    "telemetry/settings.py",
    "tools/sandbox.py",
}  # they name variables, or values of variables, in capitals
NO_CODES = {"INVALID_JSON", "NOT_GIVEN"}  # the argument in place of one that is no JSON, and of one that is not given
KERNEL_FILES = sorted((ROOT / "ledger/sql/kernel").glob("*.sql"))
PYTHON_FILES = [path for path in sorted(ROOT.rglob("*.py")) if path.name != "codes.py" and "testing" not in path.parts]


def texts(path: Path) -> set[str]:
    """Every text constant of a module but its docstrings."""
    return {
        node.value for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }  # fmt: skip


@pytest.mark.proves("G-70")
def test_every_code_is_in_the_table_once_with_its_meaning() -> None:
    constants = [value for name, value in vars(codes).items() if name.isupper() and isinstance(value, str)]
    assert sorted(constants) == sorted(KNOWN)
    assert len({code.code for code in CODES} | {reason for reason, _ in REASONS}) == len(CODES) + len(REASONS)
    assert len({code for code, _ in RUN_CODES}) == len(RUN_CODES)
    assert all(code.meaning and code.phase in ("init", "plan", "act", "reflect", "any") for code in CODES)


@pytest.mark.more  # reads all files
@pytest.mark.proves("G-70")
def test_no_module_writes_a_code_itself_or_has_one_that_is_not_in_the_table() -> None:
    copied, unknown = {}, {}
    for path in PYTHON_FILES:
        name, written = str(path.relative_to(ROOT)), texts(path)
        capitals = {text for text in written if re.fullmatch(r"[A-Z]{3,}(?:_[A-Z]+)+", text)}
        copied[name] = written & KNOWN
        unknown[name] = {text for text in capitals if not text.startswith(("HELIOGRAPH_", "OTEL_"))} - KNOWN - NO_CODES
    assert {name: found for name, found in copied.items() if found} == {}
    assert {name: found for name, found in unknown.items() if found and name not in WITH_ENVIRONMENTS} == {}


@pytest.mark.proves("G-70")
def test_kernel_ends_turns_and_calls_only_with_codes_of_the_table() -> None:
    written = {
        path.name: set(re.findall(r"'([A-Z]{4,}(?:_[A-Z]+)*)'", path.read_text("utf-8"))) for path in KERNEL_FILES
    }
    assert {name: found - KNOWN for name, found in written.items() if found - KNOWN} == {}
    assert set().union(*written.values()) >= {"TIMEOUT"}


@pytest.mark.proves("G-70")
def test_default_codes_of_errors_that_end_turns_are_in_the_table() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, HeliographError)]
    assert {kind.default_code for kind in kinds if kind.default_code.isupper()} <= KNOWN


@pytest.mark.proves("G-02")
def test_codes_of_the_specification_are_in_the_table_with_their_phases() -> None:
    phases = {
        "INIT_FAILED": "init", "PLAN_FAILED": "plan", "ACTION_FAILED": "act", "TOOL_ERROR": "act", "TOOL_TIMEOUT": "act",
        "DELEGATION_ERROR": "act", "DELEGATION_TIMEOUT": "act", "REFLECTION_ERROR": "reflect", "MEMORY_ERROR": "any",
        "NETWORK_ERROR": "any", "AUTH_ERROR": "any", "RESOURCE_EXHAUSTED": "any", "TIMEOUT": "any", "UNKNOWN": "any",
    }  # fmt: skip
    assert {code.code: code.phase for code in CODES if code.code in phases} == phases


@pytest.mark.proves("G-03")
def test_own_codes_are_registered_for_all_phases() -> None:
    own = {"RATE_LIMITED", "BUDGET_EXCEEDED", "CANCELED", "IN_DOUBT"}
    assert {code.code for code in CODES if code.code in own and code.phase == "any"} == own
    assert "MAX_ITERATIONS" in KNOWN

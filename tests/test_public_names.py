"""The public names and their modules, listed a second time on purpose, so that every change is deliberate."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import heliograph
from tests.test_docs import blocks

ROOT = Path(__file__).resolve().parent.parent
ROOT_NAMES_MAX = 42

PUBLIC = {
    "heliograph": """
        Call CallResult CircuitBreaker Client Context Defer Delegation Grant Heliograph Reply RetryPolicy
        RunResult Runtime Secret Session SessionMessage Signal SignalDefinition Step Tool ToolContext
        define_signal external_tool open_runtime secret tool untrusted
    """,
    "heliograph.adapters": "JsonLines Logs Metrics Terminal Webhook",
    "heliograph.agents": "Agent AgentSpec define_agent tool_agent",
    "heliograph.client": "Budget Card Command EndedRun FollowedRun HumanTask PendingReply StopResult TextPiece",
    "heliograph.config": "Settings",
    "heliograph.control": """
        ControlSettings DelegationPayload DelegationResponse DelegationResponsePayload DelegationSignal Envelope
        ErrorPayload ErrorSignal HaltPayload HaltSignal HeartbeatPayload HeartbeatSettings HeartbeatSignal
        ReadyPayload ReadySignal RouteTable ToolCallPayload ToolCallResponse ToolCallResponsePayload ToolCallSignal
        read_envelope read_routes read_settings read_signal
    """,
    "heliograph.errors": """
        AgentFailed BudgetExceeded CircuitOpen Conflict DelegationFailed Denied HarnessError HeliographError
        InvalidInput KernelRejected NotFound RateLimited RecoverableError Rejected SetupError StepInDoubt
        StoreUnavailable ToolFailed ToolTimedOut TurnTimedOut UnrecoverableError
    """,
    "heliograph.gateway": "Gateway",
    "heliograph.manifest": "parse_manifest read_message_routing read_runtime_spec",
    "heliograph.memory": "Memory MemoryHit",
    "heliograph.models": """
        AgentHarness AssistantMessage FileReference FunctionHarness Harness ModelReply ModelRequest
        ScriptedModel TextDelta ThinkingDelta ToolCall ToolMessage ToolSpec UserMessage
    """,
    "heliograph.phases": """
        DelegationStep GoalAchieved IterationNeeded Lifecycle ModelStep PhaseContext Plan ToolStep
        lifecycle_options
    """,
    "heliograph.playback": "Player Snapshot",
    "heliograph.recording": """
        Recording RecordingOptions ReplayDiverged ReplayResult read_recording replay write_recording
    """,
    "heliograph.signal_handlers": "DelegationHandler FallbackHandler SignalHandler SignalHandlers ToolCallHandler",
    "heliograph.signals": "Source changed_value compile_pattern draw_tree",
    "heliograph.testing": """
        ApplicationServer CrashReport RecordedRun ServedApplication SignalMatch Simulation StubServer
        caused_by contains crash_at crash_at_every_await eventually in_order never serve signal simulate
        virtual_time
    """,
    "heliograph.tools": "MCPServer SandboxLimits code_tool",
    "heliograph.trace_context": "trace_headers",
    "heliograph.types": "Json JsonObject NOT_GIVEN NotGiven Timeout",
    "heliograph.webhooks": "sign_webhook verify_webhook",
}

HEAVY = ("asyncpg", "pydantic", "pydantic_ai", "rich", "nats", "asyncio")


def modules_with_all() -> set[str]:
    """The modules that declare `__all__`."""
    found = set()
    for path in (ROOT / "src" / "heliograph").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "__all__" in text and any(
            isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" for node in ast.parse(text).body
        ):
            parts = path.relative_to(ROOT / "src").with_suffix("").parts
            found.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


@pytest.mark.parametrize("module", [module for module in PUBLIC if module != "heliograph"])
def test_root_names_the_module_of_each_name_that_it_does_not_have(module: str) -> None:
    for name in PUBLIC[module].split():
        with pytest.raises(ImportError, match=f"write `from {module} import {name}`$"):
            __import__("heliograph", fromlist=[name])  # as an import statement does
        with pytest.raises(ImportError, match=f"write `from {module} import {name}`$"):
            getattr(heliograph, name)


def test_root_rejects_names_that_no_module_has_and_has_its_submodules() -> None:
    assert not hasattr(heliograph, "ScriptedModl")
    assert __import__("heliograph", fromlist=["json_pointer"]).json_pointer.pointer


@pytest.mark.parametrize("module", PUBLIC)
def test_module_exports_exactly_the_listed_names(module: str) -> None:
    assert sorted(import_module(module).__all__) == sorted(PUBLIC[module].split())


def test_modules_with_all_are_the_public_ones() -> None:
    assert modules_with_all() == set(PUBLIC)


def test_root_has_few_names() -> None:
    assert len(heliograph.__all__) <= ROOT_NAMES_MAX


def test_each_name_is_imported_from_one_module() -> None:
    counts = Counter(name for names in PUBLIC.values() for name in names.split())
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_exists_with_a_docstring(module: str) -> None:
    for name in PUBLIC[module].split():
        thing = getattr(import_module(module), name)
        assert thing.__doc__, f"{module}.{name} has no docstring"


@pytest.mark.parametrize("module", PUBLIC)
def test_unknown_name_raises_attribute_error(module: str) -> None:
    assert not hasattr(import_module(module), "no_such_name")


def test_reference_lists_the_names_of_each_module() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    rows = [re.findall(r"`([\w.]+)`", line) for line in page.splitlines() if line.startswith("| `")]
    assert {module: names for module, *names in rows} == {module: names.split() for module, names in PUBLIC.items()}


def users_texts() -> Iterator[tuple[str, str]]:
    """The text of each page, example and starter file that users copy from, with its name."""
    pages = [
        ROOT / "README.md",
        *(page for part in ("how-to", "learn", "reference") for page in (ROOT / "docs" / part).rglob("*.md")),
    ]
    for page in pages:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language == "python":
                yield f"{page.relative_to(ROOT)}:{block.line}", block.text
    for file in [*(ROOT / "examples").rglob("*.py"), *(ROOT / "src/heliograph/cli/starter_files").glob("*.txt")]:
        yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")


def imported(text: str) -> Iterator[tuple[str, str]]:
    """The names that a program imports from Heliograph, each with its module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "heliograph":
            yield from ((str(node.module), each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names if each.name.startswith("heliograph."))


def test_programs_for_users_import_public_names_only() -> None:
    public = {(module, name) for module, names in PUBLIC.items() for name in names.split()}
    found = [(place, *each) for place, text in users_texts() for each in imported(text)]
    assert len(found) > len(PUBLIC)
    assert [each for each in found if each[1:] not in public] == []


def test_pages_name_public_modules_only() -> None:
    """A word in code like `heliograph.control` that is the path of a module; loggers and SQL functions have other names."""
    internal = set()
    for page in (page for part in ("how-to", "learn", "reference") for page in (ROOT / "docs" / part).rglob("*.md")):
        for name in re.findall(r"`(heliograph(?:\.\w+)+)`", page.read_text(encoding="utf-8")):
            module = name if is_module(name) else name.rpartition(".")[0]
            internal |= {(page.name, name)} if is_module(module) and module not in PUBLIC else set()
    assert internal == set()


def is_module(name: str) -> bool:
    path = ROOT / "src" / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, heliograph; print([m for m in {HEAVY!r} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"

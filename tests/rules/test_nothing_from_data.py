"""Nothing is executed from data (S16): the source has no way to do it except by an operator's own setting."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import heliograph

ROOT = Path(heliograph.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "jsonpickle", "code", "codeop"}
CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
}
# a compile that is no execution, and the one place that loads the module of `helio run MODULE:APP`
LOADERS = {
    "lazy_names.py": "our own modules, by our own tables",
    "cli/dispatch.py": "our own commands, by our own table",
    "cli/load_application.py": "the application that the operator's command line names",
    "tools/sandbox_launcher.py": "our own program in the sandbox",
    "tools/sandbox_program.py": "what a tool runs in the sandbox",
}
LOADING = {"import_module", "spec_from_file_location", "exec_module", "run_path", "run_module", "module_from_spec"}


def called(node: ast.Call) -> str:
    function, names = node.func, []
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    names.append(function.id if isinstance(function, ast.Name) else "")
    return ".".join(reversed(names))


def breaches(source: str, name: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            found += [f"imports {each}" for each in modules if each.partition(".")[0] in MODULES]
        if isinstance(node, ast.Call):
            called_name = called(node)
            is_shell = any(k.arg == "shell" and getattr(k.value, "value", True) is not False for k in node.keywords)
            if (
                (called_name in CALLS and not (called_name == "compile" and name in LOADERS))
                or is_shell
                or "create_subprocess_shell" in called_name
            ):
                found.append(f"calls {called_name}")
            if called_name.rpartition(".")[2] in LOADING and name not in LOADERS:
                found.append(f"loads code by {called_name}")
    return found


@pytest.mark.more  # reads all files
@pytest.mark.proves("S16")
def test_no_module_executes_data() -> None:
    found = {name: breaches(path.read_text("utf-8"), name) for path in FILES for name in [str(path.relative_to(ROOT))]}
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from marshal import loads", "from yaml import load", "eval('1')", "exec('1')", "import os\nos.system('x')", "compile('1', '', 'eval')",
        "import subprocess\nsubprocess.run('x', shell=True)", "import importlib\nimportlib.import_module(name)",
        "import asyncio\nasyncio.create_subprocess_shell('x')", "__import__('os')",
    ],
)  # fmt: skip
def test_gate_finds_each_way_to_execute_data(source: str) -> None:
    assert breaches(source, "any.py") != []
    assert breaches("import subprocess\nsubprocess.run(['x'], shell=False)", "any.py") == []


@pytest.mark.proves("S16")
def test_model_that_names_a_function_by_its_module_gets_no_tool() -> None:
    """Names from a model, a report or a manifest are looked up only in the agent's own list."""
    loaders = [
        str(path.relative_to(ROOT)) for path in FILES if any(word in path.read_text("utf-8") for word in LOADING)
    ]
    assert set(loaders) <= set(LOADERS) | {"testing/scenarios/workload.py", "tools/sandboxed_tools.py"}

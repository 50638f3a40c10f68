"""Run code inside the sandbox. `sandbox_launcher` loads this module there; it imports no other module of Heliograph."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import runpy
import site
import sys
import traceback
from typing import Any


def run(spec: dict[str, Any]) -> None:
    """Run the code or the function of a specification; its fields are those that `sandbox.run_sandboxed` sends."""
    _complete_interpreter(spec)
    if "code" in spec:
        _run_code(spec["code"])
    else:
        _run_function(spec)


def _complete_interpreter(spec: dict[str, Any]) -> None:
    """Run the part of the startup that `-S` omitted: inside the sandbox, the startup files of installed packages may run."""
    site.setquit()
    site.setcopyright()
    site.sethelper()
    sys.path[:0] = spec.get("path", [])
    for folder in spec["packages"]:
        site.addsitedir(folder)


def _run_code(code: str) -> None:
    with open("/jail/code.py", "w", encoding="utf-8") as file:
        file.write(code)
    sys.argv = ["code.py"]
    runpy.run_path("/jail/code.py", run_name="__main__")


def _run_function(spec: dict[str, Any]) -> None:
    """Call a function of an application by its module and name, and print its result as JSON."""
    import inspect  # here, because code_tool() needs neither this nor asyncio, and each import costs time

    results = os.dup(1)
    os.dup2(2, 1)  # texts that the function prints are not its result
    try:
        target: Any = _module(spec)
        for part in spec["qualname"].split("."):
            target = getattr(target, part)
        import pydantic
        from pydantic_core import ArgsKwargs, to_jsonable_python

        function = getattr(target, "function", None) or target
        result = pydantic.TypeAdapter(function).validate_python(ArgsKwargs((), spec["arguments"]))
        if inspect.isawaitable(result):
            import asyncio

            result = asyncio.run(_awaited(result))
        outcome = {"result": to_jsonable_python(result)}
    except Exception as error:
        traceback.print_exc()
        outcome = {"error": f"{type(error).__name__}: {error}"}
    with open(results, "w", encoding="utf-8") as out:
        json.dump(outcome, out)


async def _awaited(work: Any) -> Any:
    return await work


def _module(spec: dict[str, Any]) -> Any:
    if spec["file"] is None:
        return importlib.import_module(spec["module"])
    module_spec = importlib.util.spec_from_file_location("isolated_module", spec["file"])
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules["isolated_module"] = module
    module_spec.loader.exec_module(module)
    return module

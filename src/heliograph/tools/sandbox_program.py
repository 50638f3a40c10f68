"""Run code inside the sandbox. `sandbox_launcher` loads this module after it has entered the sandbox; it imports no other module of ours."""

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
    _complete_interpreter(spec)
    if "code" in spec:
        _run_code(spec["code"])
    else:
        _run_function(spec)


def _complete_interpreter(spec: dict[str, Any]) -> None:
    """Do what `-S` left out, now that files of installed packages are run in the sandbox."""
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
    import inspect  # code_tool() needs neither this nor asyncio, and waits for their import each time

    answers = os.dup(1)
    os.dup2(2, 1)  # what it prints is not its result
    try:
        found: Any = _module(spec)
        for part in spec["qualname"].split("."):
            found = getattr(found, part)
        import pydantic
        from pydantic_core import ArgsKwargs, to_jsonable_python

        function = getattr(found, "function", None) or found
        result = pydantic.TypeAdapter(function).validate_python(ArgsKwargs((), spec["arguments"]))
        if inspect.isawaitable(result):
            import asyncio

            result = asyncio.run(_awaited(result))
        answer = {"result": to_jsonable_python(result)}
    except Exception as error:
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"}
    with open(answers, "w", encoding="utf-8") as out:
        json.dump(answer, out)


async def _awaited(work: Any) -> Any:
    return await work


def _module(spec: dict[str, Any]) -> Any:
    if spec["file"] is None:
        return importlib.import_module(spec["module"])
    found = importlib.util.spec_from_file_location("isolated_module", spec["file"])
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["isolated_module"] = module
    found.loader.exec_module(module)
    return module

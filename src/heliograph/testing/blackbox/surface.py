"""The surface of a system under test: the commands that its owner describes in a file surface.toml."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heliograph.errors import InvalidInput

REQUIRED = ("worker", "start", "signals", "stop")
OPTIONAL = ("envelopes", "pool_worker")
_KEYS = frozenset({"name", "commands", "environment", "seconds"})
_PLACEHOLDERS = frozenset({"agents", "application", "pool", "run", "state", "folder", "suite", "python", "here"})
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_COMMAND_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Surface:
    """commands: arguments with placeholders. seconds: the time in which each run has to end. here: the folder of the file."""

    name: str
    commands: Mapping[str, tuple[str, ...]]
    environment: Mapping[str, str]
    seconds: float
    here: Path

    def start(
        self, command: str, values: Mapping[str, str], output: Any = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        """Start a command in a process group of its own."""
        arguments, environment = self._filled(command, values)
        try:
            return subprocess.Popen(arguments, cwd=values["folder"], env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                    stderr=output, start_new_session=True)  # fmt: skip
        except OSError as error:
            raise InvalidInput(
                f"cannot run the command {command} of {self.name}: {error}", code="invalid_surface"
            ) from error

    def lines(self, command: str, values: Mapping[str, str]) -> list[dict[str, Any]]:
        """Run a command and return the JSON objects that it prints, one per line. Other lines count as none."""
        arguments, environment = self._filled(command, values)
        try:
            done = subprocess.run(arguments, cwd=values["folder"], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=_COMMAND_SECONDS, check=False)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InvalidInput(
                f"cannot run the command {command} of {self.name}: {error}", code="invalid_surface"
            ) from error
        found = (_object(line) for line in done.stdout.splitlines())
        return [each for each in found if each is not None]

    def _filled(self, command: str, values: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        known = {**values, "python": sys.executable, "here": str(self.here)}
        added = {name: _fill(text, known) for name, text in self.environment.items()}
        return [_fill(argument, known) for argument in self.commands[command]], {**os.environ, **added}


def read_surface(path: Path) -> Surface:
    """Read a surface. Raises InvalidInput (`invalid_surface`) that names the file and the key."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"{path} is no surface: {error}", code="invalid_surface") from error

    def rejected(problem: str) -> InvalidInput:
        return InvalidInput(
            f"{path}: {problem}", code="invalid_surface", hint="docs/how-to/conformance.md describes the file"
        )

    if unknown := sorted(set(given) - _KEYS):
        raise rejected(f"there are no keys {', '.join(unknown)}; there are {', '.join(sorted(_KEYS))}")
    commands, environment = given.get("commands", {}), given.get("environment", {})
    if not isinstance(commands, dict) or not isinstance(environment, dict):
        raise rejected("commands and environment are tables")
    if missing := [name for name in REQUIRED if name not in commands]:
        raise rejected(f"the command {missing[0]} is missing from commands")
    if unknown := sorted(set(commands) - {*REQUIRED, *OPTIONAL}):
        raise rejected(f"there is no command {unknown[0]}; there are {', '.join((*REQUIRED, *OPTIONAL))}")
    for name, arguments in commands.items():
        if not isinstance(arguments, list) or not arguments or not all(isinstance(each, str) for each in arguments):
            raise rejected(f"the command {name} is a list of arguments")
    if wrong := [name for name, value in environment.items() if not isinstance(value, str)]:
        raise rejected(f"the variable {wrong[0]} has no text")
    for text in [*environment.values(), *(each for arguments in commands.values() for each in arguments)]:
        if unknown := sorted(set(_PLACEHOLDER.findall(text)) - _PLACEHOLDERS):
            raise rejected(f"there is no placeholder {{{unknown[0]}}}; there are {', '.join(sorted(_PLACEHOLDERS))}")
    seconds = given.get("seconds", 60)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 3600:
        raise rejected("seconds is a number above 0 and up to 3600")
    return Surface(str(given.get("name", path.stem)), {name: tuple(each) for name, each in commands.items()}, environment,
                   float(seconds), path.resolve().parent)  # fmt: skip


def _fill(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None

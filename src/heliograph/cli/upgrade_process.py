"""`python -m heliograph.cli.upgrade_process`: the process in which `helio upgrade check` runs the code of an application."""

from __future__ import annotations

import logging
import os
from argparse import Namespace
from typing import Any

from heliograph.cli.load_target import load_target
from heliograph.harness.resolve import Harnesses
from heliograph.redaction import keep_keys_out
from heliograph.upgrade.check_turn import CheckedApplication
from heliograph.upgrade.turn_process import serve


def main() -> None:
    requests, answers = (os.fdopen(os.dup(fd), mode) for fd, mode in ((0, "rb"), (1, "wb")))
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)  # agents may print
    logging.disable()  # a handler of the application may write to a file
    keep_keys_out(os.environ)
    serve(_load, requests, answers)
    os._exit(0)  # threads of the application may still run


def _load(first: dict[str, Any]) -> CheckedApplication:
    app = load_target(first["reference"], Namespace(**first["options"]))
    return CheckedApplication.of(app.workflow, first["project"], Harnesses(os.environ.get("HELIOGRAPH_MODEL")))


if __name__ == "__main__":
    main()

"""The manifests that `helio run` and `helio worker` apply to an application: `--runtime` and `--routing`."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from heliograph.cli.files import read_file

if TYPE_CHECKING:
    from heliograph.app import Heliograph
    from heliograph.manifest.message_routing import MessageRouting
    from heliograph.manifest.runtime_spec import RuntimeSpec

_OPTIONS = ("runtime", "routing")


def configure(app: Heliograph, options: Namespace) -> Heliograph:
    """Return the application with the settings of the manifests that the command line names.

    Raises ManifestRejected with the problems of all manifests, and the errors of `read_file`.
    """
    if options.runtime is None and options.routing is None:
        return app
    from heliograph.manifest.problems import ManifestProblem, accepted, gathered  # slow to import

    runtime: RuntimeSpec | None = None
    routing: MessageRouting | None = None
    found: list[ManifestProblem] = []
    allows_secrets = options.allow_secret_literals
    with gathered(found):
        runtime = None if options.runtime is None else load_runtime(options.runtime, allows_secrets=allows_secrets)
    with gathered(found):
        routing = None if options.routing is None else load_routing(options.routing, allows_secrets=allows_secrets)
    with gathered(found):
        app = app.configured(runtime, routing)
    accepted(found)
    return app


def load_runtime(path: str, *, allows_secrets: bool) -> RuntimeSpec:
    """Read a RuntimeSpec from a file. Raises ManifestRejected, and the errors of `read_file`."""
    from heliograph.manifest.reader import parse_manifest
    from heliograph.manifest.runtime_spec import read_runtime_spec
    from heliograph.manifest.sections import is_payload_of_signal

    data = read_file(Path(path))
    return read_runtime_spec(
        parse_manifest(data, path, os.environ, is_payload_of_signal, allows_secrets=allows_secrets)
    )


def load_routing(path: str, *, allows_secrets: bool) -> MessageRouting:
    """Read a MessageRouting from a file. Raises ManifestRejected, and the errors of `read_file`."""
    from heliograph.manifest.message_routing import read_message_routing
    from heliograph.manifest.reader import parse_manifest

    data = read_file(Path(path))
    return read_message_routing(parse_manifest(data, path, os.environ, allows_secrets=allows_secrets))


def manifest_options(options: Namespace) -> list[str]:
    """Return the options of a command line that name manifests, for a command that repeats it."""
    return [part for name in _OPTIONS if (path := getattr(options, name)) is not None for part in (f"--{name}", path)]

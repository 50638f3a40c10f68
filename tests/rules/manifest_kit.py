"""Read manifests from texts, and the problems that they have."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.manifest.document import Document
from heliograph.manifest.message_routing import MessageRouting, read_message_routing
from heliograph.manifest.problems import ManifestProblem, ManifestRejected
from heliograph.manifest.reader import parse_manifest
from heliograph.manifest.runtime_spec import RuntimeSpec, read_runtime_spec
from heliograph.manifest.sections import is_payload_of_signal

RUNTIME = "apiVersion: ossa/v0.4.9\nkind: RuntimeSpec\n"
ROUTING = "apiVersion: ossa/v0.4.9\nkind: MessageRouting\n"


def parse(text: str | bytes, file: str = "m.yaml", environment: Mapping[str, str] | None = None) -> Document:
    data = textwrap.dedent(text).encode() if isinstance(text, str) else text
    return parse_manifest(data, file, environment, is_payload_of_signal)


def runtime(text: str | bytes, environment: Mapping[str, str] | None = None, file: str = "m.yaml") -> RuntimeSpec:
    return read_runtime_spec(parse(text, file, environment))


def routing(text: str | bytes, file: str = "m.yaml") -> MessageRouting:
    return read_message_routing(parse(text, file))


def rejected(
    text: str | bytes, environment: Mapping[str, str] | None = None,
    read: Callable[[Document], object] = read_runtime_spec, file: str = "m.yaml",
) -> tuple[ManifestProblem, ...]:  # fmt: skip
    """The problems of a manifest that is rejected."""
    with pytest.raises(ManifestRejected) as caught:
        read(parse(text, file, environment))
    return caught.value.problems


def found(problems: tuple[ManifestProblem, ...]) -> list[tuple[str, int, int]]:
    return [(each.code, each.line, each.column) for each in problems]


def application(**options: Any) -> Heliograph:
    app = Heliograph("press", **options)

    @app.agent(activate_on=["workflow:start"])
    def writer(ctx: Context) -> None: ...

    return app

"""`helio init`: write an application or a commented manifest to start from; beside a manifest, the schema for editors."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from heliograph.cli.output import json_line, line
from heliograph.cli.templates import TEMPLATES, template_text
from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError, Rejected
from heliograph.manifest.schema_descriptions import schema_text
from heliograph.manifest.starters import STARTERS, schema_file, starter_text


def init(options: Namespace) -> int:
    """Write the starter of a kind. Raises Rejected (`file_exists`) instead of replacing a file."""
    if options.kind in TEMPLATES:
        return _write_application(options)
    path = Path(options.output or STARTERS[options.kind])
    schema = path.with_name(schema_file(options.kind))
    _write(path, starter_text(options.kind))
    is_new = not schema.exists()
    if is_new:
        _write(schema, schema_text(options.kind))
    if options.json:
        json_line("created", {"kind": options.kind, "file": str(path), "schema": str(schema)})
        return 0
    line(f"wrote {path}" + (f", and {schema} for editors" if is_new else ""))
    line(f"next: helio validate {path}")
    return 0


def _write_application(options: Namespace) -> int:
    path = Path(options.output or TEMPLATES[options.kind])
    _write(path, template_text(options.kind))
    if options.json:
        json_line("created", {"kind": options.kind, "file": str(path)})
        return 0
    line(f"wrote {path}")
    line(f"next: helio check {path}:app; the first lines of the file have the command that runs it")
    return 0


def _write(path: Path, text: str) -> None:
    name = safe_repr(str(path), 300)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Rejected(
            f"there is a file {name} already; choose another name with --output", code="file_exists", path=name
        ) from None
    except OSError as error:
        raise HeliographError(
            f"cannot write {name}: {error.strerror or error}", code="output_failed", path=name
        ) from None

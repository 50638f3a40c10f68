"""`helio schema [KIND]`: the kinds of manifests, and their JSON Schemas for editors and other programs."""

from __future__ import annotations

from argparse import Namespace

from heliograph.cli.output import block, json_line, table
from heliograph.manifest.schema_descriptions import described, schema_text
from heliograph.manifest.schemas import KINDS, schema_of_kind


def show(options: Namespace) -> int:
    """Print the schema of a kind, or else the list of all kinds."""
    if options.kind is not None:
        if options.json:
            json_line(None, described(schema_of_kind(options.kind)), is_input=True)
        else:
            block(schema_text(options.kind))
        return 0
    listed = [(kind, str(schema_of_kind(kind)["description"])) for kind in KINDS]
    if options.json:
        for kind, description in listed:
            json_line("schema", {"kind": kind, "description": description})
    else:
        table(("KIND", "DESCRIPTION"), listed)
    return 0

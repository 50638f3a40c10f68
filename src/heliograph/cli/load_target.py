"""Load what `helio run` and `helio worker` run: an application, or a manifest with its bindings."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from heliograph.cli.agent_manifests import bind, is_manifest, parse_agent, valid_agent
from heliograph.cli.bindings import Bindings, binding_options, read_bindings
from heliograph.cli.files import read_file
from heliograph.cli.load_application import load_app
from heliograph.cli.output import note
from heliograph.cli.workflow_manifests import STEP_KINDS, bind_workflow
from heliograph.error_text import counted, safe_repr
from heliograph.errors import InvalidInput
from heliograph.manifest.problems import WARNINGS_MAX, ManifestProblem, ManifestRejected
from heliograph.manifest.reader import kind_of

if TYPE_CHECKING:
    from heliograph.app import Heliograph


def load_target(reference: str, options: Namespace) -> Heliograph:
    """Load what `helio run` and `helio worker` run: an application, or a manifest of an agent or workflow with its bindings.

    Raises the errors of `load_app` and `load_manifest`, and InvalidInput (`usage`) for bindings of an application.
    """
    if not is_manifest(reference):
        applied = options.runtime is not None or options.routing is not None
        given = [each for each in binding_options(options) if not (applied and each == "--allow-secret-literals")]
        if given:
            raise InvalidInput(f"{given[0]} is for manifests, and {safe_repr(reference)} is an application; its code has its tools and models",
                               code="usage", path=given[0])  # fmt: skip
        return load_app(reference)
    application, warnings = load_manifest(Path(reference), read_bindings(options))
    for each in warnings[:WARNINGS_MAX]:
        note(f"warning: {each}")
    if (more := len(warnings) - WARNINGS_MAX) > 0:
        note(f"{counted(more, 'more warning')}; helio validate --json {safe_repr(reference)} prints all of them")
    return application


def load_manifest(path: Path, bindings: Bindings) -> tuple[Heliograph, list[ManifestProblem]]:
    """Return the application of a manifest, and its warnings.

    Raises ManifestRejected for an invalid manifest and for one with missing bindings.
    """
    document = parse_agent(read_file(path), str(path), bindings)
    if kind_of(document) in STEP_KINDS:
        application, problems = bind_workflow(document, path, bindings)
    else:
        manifest = valid_agent(document, bindings)
        application, problems = bind(manifest, bindings)
        problems = [*manifest.warnings, *problems]
    if application is None:
        raise ManifestRejected(problems)
    return application, problems

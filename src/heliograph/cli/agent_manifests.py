"""Turn a manifest of kind Agent into an application: bind its tools, its model and its MCP servers.

A manifest only names tools. They come from the application of `--tools`, from MCP servers, or from external workers.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from heliograph.cli.bindings import Bindings
from heliograph.cli.tool_binding import bound_tools
from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError
from heliograph.manifest.agent_manifest import AgentManifest, gather_agent, short_name
from heliograph.manifest.document import Document, dotted
from heliograph.manifest.ossa import KINDS, validate_ossa
from heliograph.manifest.problems import ManifestProblem, ManifestRejected, accepted
from heliograph.manifest.reader import kind_of, parse_manifest

if TYPE_CHECKING:
    from heliograph.app import Heliograph
    from heliograph.execution.context import Context

SUFFIXES = (".yaml", ".yml", ".json")
_APPLIED = {"RuntimeSpec": "--runtime", "MessageRouting": "--routing"}
_OWN = "/extensions/heliograph"
_PLACES = {
    "name": "/metadata/name",
    "version": "/metadata/version",
    "tools": "/spec/tools",
    "max_steps": "/spec/lifecycle",
}
_OF_RUNS = (
    "activate_on",
    "activate_when_all",
    "updates",
    "emits",
)  # what an agent that is a part of a workflow does not have
START = "Begin."  # the prompt of a run without an input

_CREDENTIALS = {
    "openai-chat": ("OPENAI_API_KEY", "OPENAI_BASE_URL"), "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"), "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"), "mistral": ("MISTRAL_API_KEY",), "cohere": ("CO_API_KEY",),
    "groq": ("GROQ_API_KEY",), "together": ("TOGETHER_API_KEY",), "fireworks": ("FIREWORKS_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",), "azure": ("AZURE_OPENAI_API_KEY",), "ollama": ("OLLAMA_BASE_URL",),
}  # fmt: skip


def is_manifest(reference: str) -> bool:
    """Whether an argument names a manifest instead of an application."""
    return reference.endswith(SUFFIXES)


def parse_agent(data: bytes, file: str, bindings: Bindings) -> Document:
    """Parse a manifest of an agent. Its variables are expanded where they are used."""
    return parse_manifest(data, file, allows_secrets=bindings.allows_secrets)


def valid_agent(document: Document, bindings: Bindings) -> AgentManifest:
    """Return the agent of a manifest. Raises ManifestRejected for one that is invalid or of another kind, with missing bindings."""
    if not document.is_readable:
        raise ManifestRejected(document.problems)
    if (option := _APPLIED.get(str(kind_of(document)))) is not None:
        raise ManifestRejected([document.problem(
            "not_runnable", f"a {kind_of(document)} is no agent; it is applied to an application", "/kind",
            f"write helio run FILE.py:app {option} {document.file}",
        )])  # fmt: skip
    warnings = check_schema(document, bindings)
    if (kind := kind_of(document)) != "Agent":
        raise ManifestRejected([not_run(document, str(kind)), *warnings])
    made, found = gather_agent(document, os.environ)
    if any(not each.is_warning for each in found):
        found += missing_of(made, bindings)
    return replace(made, warnings=tuple(accepted([*warnings, *found])))


def check_schema(document: Document, bindings: Bindings) -> list[ManifestProblem]:
    """Return the warnings about a document. Raises ManifestRejected for one that is invalid under its schema, with all other problems too."""
    found = [*document.problems, *validate_ossa(document)]
    if kind_of(document) == "Agent" and any(not each.is_warning for each in found):
        known = {each.pointer for each in found}
        made, further = gather_agent(document, os.environ)
        further += missing_of(made, bindings)
        found += [each for each in further if not each.is_warning and each.pointer not in known]
    return accepted(found)


def missing_of(manifest: AgentManifest, bindings: Bindings) -> list[ManifestProblem]:
    """Return the missing bindings of an invalid manifest, whose servers are never started."""
    missing: list[ManifestProblem] = []
    bound_tools(manifest, bindings, missing, asks=False)
    _models(manifest, bindings, missing)
    return missing


def not_run(document: Document, kind: str) -> ManifestProblem:
    """Return the problem of a valid manifest whose kind Heliograph does not run."""
    if kind in ("Workflow", "Task"):  # a step of a workflow refers to it
        return document.problem("not_runnable", f"a step delegates to an agent, and this is a manifest of kind {kind}", "/kind",
                                "refer to a manifest of kind Agent")  # fmt: skip
    hint = (
        "write an application: agents with signals and delegations"
        if kind in KINDS
        else "helio run takes manifests of the kinds Agent, Workflow and Task"
    )
    return document.problem("not_runnable", f"Heliograph runs no manifest of kind {safe_repr(kind)}", "/kind", hint)


def bind(manifest: AgentManifest, bindings: Bindings) -> tuple[Heliograph | None, list[ManifestProblem]]:
    """Return the application of an agent, and warnings; or None, and what is missing.

    Raises ManifestRejected for options that no agent can have.
    """
    from heliograph.app import Heliograph

    try:
        application = Heliograph(short_name(manifest.name).lower())
        problems = add_agent(application, manifest, bindings)
        application.workflow  # noqa: B018  checked as a whole
    except ManifestRejected:
        raise
    except HeliographError as error:
        raise ManifestRejected([_of_option(manifest, error), *manifest.warnings]) from error
    return None if any(not each.is_warning for each in problems) else application, problems


def add_agent(
    application: Heliograph, manifest: AgentManifest, bindings: Bindings, *, is_part: bool = False
) -> list[ManifestProblem]:
    """Add the agent of a manifest to an application, with what is bound. Return what is missing, and warnings.

    is_part: other agents delegate to it, and no signal activates it. Raises ManifestRejected for options that no agent can have.
    """
    problems: list[ManifestProblem] = []
    tools = bound_tools(manifest, bindings, problems)
    models = _models(manifest, bindings, problems)
    usual: dict[str, Any] = (
        {"on_request": True} if is_part else {"activate_on": ["workflow:start"], "updates": "output"}
    )
    options = {**usual, **manifest.options}
    if any(not each.is_warning for each in problems):  # the option may name one of the missing tools
        options.pop("must_end_with", None)
    if is_part:
        options = {key: each for key, each in options.items() if key not in _OF_RUNS}
    prompt = options.pop("prompt", task_of if is_part else prompt_of)
    rejected = list[ManifestProblem]()
    while True:
        try:
            application.prompt_agent(
                manifest.name,
                prompt,
                model=models or None,
                system=manifest.system,
                version=manifest.version,
                tools=tools,
                **options,
            )
        except HeliographError as error:  # also Rejected, for a reserved name of a signal
            rejected.append(_of_option(manifest, error))
            if options.pop(_option_of(manifest, error), None) is None:
                break
            options = {**usual, **options}  # without the option, to find the problems of the others
        else:
            break
    if rejected:
        raise ManifestRejected([*rejected, *problems, *manifest.warnings])
    return problems


def prompt_of(context: Context) -> str:
    """Return the prompt of a manifest's agent: the `input` of the run's state, or else the whole state."""
    state = context.document
    given = state.get("input", state or None)
    if given is None:
        return START
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def task_of(context: Context) -> str:
    """Return the prompt of a manifest's agent to which another agent delegates: its task."""
    return context.task if isinstance(context.task, str) else json.dumps(context.task, ensure_ascii=False)


def _models(manifest: AgentManifest, bindings: Bindings, missing: list[ManifestProblem]) -> Any:
    """Return the model or models of the agent, and add one that cannot be used to `missing`."""
    if bindings.model is not None and not isinstance(bindings.model, str):
        return bindings.model
    named = [(each.name, each.pointer) for each in manifest.models if each.name is not None]
    if bindings.model is not None:
        named = [(bindings.model, "/spec/llm")]
    elif not named and os.environ.get("HELIOGRAPH_MODEL"):
        named = [(os.environ["HELIOGRAPH_MODEL"], "/spec/llm")]
    if not named:
        pointer = next((each.pointer for each in manifest.models), "/spec")
        unnamed = manifest.document.problem("missing_model", "the manifest names no model that Heliograph knows", pointer,
                                            "name one: --model PROVIDER:MODEL, or HELIOGRAPH_MODEL")  # fmt: skip
        missing.append(replace(unnamed, binding="HELIOGRAPH_MODEL"))
        return None
    names = []
    for name, pointer in named:
        problem = _model_problem(manifest, name, pointer)
        if problem is None:
            names.append(name)
        else:
            missing.append(replace(problem, is_warning=pointer != named[0][1]))
    return names[0] if len(names) == 1 else names


def _model_problem(manifest: AgentManifest, name: str, pointer: str) -> ManifestProblem | None:
    """Return why a model cannot be used: its credential or its library is missing, or nobody knows it."""
    variables = _CREDENTIALS.get(name.partition(":")[0], ())
    if variables and not any(os.environ.get(each) for each in variables):
        problem = manifest.document.problem("missing_credential", f"the model {safe_repr(name)} needs the environment variable "
                                            f"{' or '.join(variables)}", pointer, f"set {variables[0]}, or use another model: --model")  # fmt: skip
        return replace(problem, binding=variables[0])
    from heliograph.errors import SetupError
    from heliograph.harness.resolve import Harnesses

    try:
        Harnesses()(name)
    except SetupError as error:
        written = manifest.document.value_at(pointer)
        is_expanded = (
            isinstance(written, str) and "$" in written
        )  # its value may be a secret, so the message has no part of it
        message = f"the value of {safe_repr(written)} is no model that can be used" if is_expanded else error.message
        problem = manifest.document.problem("missing_model", message, pointer, "use another model: --model" if is_expanded else
                                            error.hint or "use another model: --model")  # fmt: skip
        return replace(problem, binding=str(written) if is_expanded else name)
    return None


def _of_option(manifest: AgentManifest, error: HeliographError) -> ManifestProblem:
    """Return the problem of an option that `define_agent` rejects, at its place and with its key in the manifest."""
    option = _option_of(manifest, error)
    own = manifest.document.value_at(_OWN)
    if error.path in ("/name", "/agents"):
        option = "name"
    pointer = f"{_OWN}/{option}"
    if not isinstance(own, dict) or option not in own:
        pointer = _PLACES.get(option, "/spec")
    message = error.message if option != "name" else error.message.replace("Heliograph", dotted(pointer), 1)
    return manifest.document.problem(error.code, message, pointer, error.hint or "correct the manifest")


def _option_of(manifest: AgentManifest, error: HeliographError) -> str:
    """Return the option of `define_agent` that an error is about."""
    return (error.path or "").removeprefix(f"/agents/{manifest.name}/").partition("/")[0]

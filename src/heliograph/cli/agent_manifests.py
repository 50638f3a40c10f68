"""Turn a manifest of kind Agent into an application: bind its tools, its model and its MCP servers.

A manifest only names tools. They come from the application of `--tools`, from MCP servers, or from external workers.
"""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from heliograph.cli.bound_tools import add_tool, approved_tool, external_tool_of, other_parameters, restricted_server
from heliograph.cli.load_application import load_app, load_object
from heliograph.cli.manifest_servers import server_of
from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError
from heliograph.manifest.agent_manifest import AgentManifest, read_agent, short_name
from heliograph.manifest.agent_tools import ServerReference, ToolReference, bound_name
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


@dataclass
class Bindings:
    """What an operator binds to a manifest: the tools of an application, a model, and permissions.

    model: overrides the models of the manifest: a name, or a model object. starts_servers: whether the manifest's own MCP servers may be
    started as programs, or reached at their URLs, with the variables of the environment that they name. external: whether tools without
    another binding are external tools. allows_secrets: whether a text that looks like a secret is a warning, and no error.
    agents: those of the application, by name, for the steps of a workflow.
    """

    tools: dict[str, Any] = field(default_factory=dict)
    servers: dict[str, Any] = field(default_factory=dict)
    model: Any = None
    starts_servers: bool = False
    external: bool = False
    allows_secrets: bool = False
    agents: dict[str, Any] = field(default_factory=dict)


def is_manifest(reference: str) -> bool:
    """Whether an argument names a manifest instead of an application."""
    return reference.endswith(SUFFIXES)


def binding_options(options: Namespace) -> list[str]:
    """Return the options of a command line that bind tools and models, for a command that repeats it."""
    named = [
        part
        for name in ("tools", "model")
        if (value := getattr(options, name)) is not None
        for part in (f"--{name}", value)
    ]
    return [
        *named,
        *(["--start-servers"] if options.start_servers else []),
        *(["--external-tools"] if options.external_tools else []),
        *(["--allow-secret-literals"] if options.allow_secret_literals else []),
    ]


def read_bindings(options: Namespace) -> Bindings:
    """Read the bindings from the options of a command. Raises the errors of `load_app`."""
    made = Bindings(starts_servers=options.start_servers, external=options.external_tools,
                    allows_secrets=options.allow_secret_literals)  # fmt: skip
    if options.tools is not None:
        made.agents = dict(load_app(options.tools).workflow.agents)
        for agent in made.agents.values():
            for each in agent.tools:
                if hasattr(each, "open_tools"):
                    made.servers[str(getattr(each, "label", type(each).__name__))] = each
                else:
                    made.tools[each.name] = each
    if options.model is not None:
        made.model = load_object(options.model) if ".py:" in options.model else options.model
    return made


def parse_agent(data: bytes, file: str, bindings: Bindings) -> Document:
    """Parse a manifest of an agent. Its variables are expanded where they are used."""
    document = parse_manifest(data, file)
    if bindings.allows_secrets:
        document.problems[:] = [
            replace(each, is_warning=True) if each.code == "secret_literal" else each for each in document.problems
        ]
    return document


def valid_agent(document: Document) -> AgentManifest:
    """Return the agent of a manifest. Raises ManifestRejected for one that is invalid or of another kind."""
    if not document.is_readable:
        raise ManifestRejected(document.problems)
    if (option := _APPLIED.get(str(kind_of(document)))) is not None:
        raise ManifestRejected([document.problem(
            "not_runnable", f"a {kind_of(document)} is no agent; it is applied to an application", "/kind",
            f"write helio run FILE.py:app {option} {document.file}",
        )])  # fmt: skip
    warnings = check_schema(document)
    if (kind := kind_of(document)) != "Agent":
        raise ManifestRejected([not_run(document, str(kind)), *warnings])
    return read_agent(document, os.environ)


def check_schema(document: Document) -> list[ManifestProblem]:
    """Return the warnings about a document. Raises ManifestRejected for one that is invalid under its schema, with all other problems too."""
    found = [*document.problems, *validate_ossa(document)]
    if kind_of(document) == "Agent" and any(not each.is_warning for each in found):
        known = {each.pointer for each in found}
        try:
            further: Sequence[ManifestProblem] = read_agent(document, os.environ).warnings
        except ManifestRejected as rejected:
            further = rejected.problems
        found += [each for each in further if not each.is_warning and each.pointer not in known]
    return accepted(found)


def not_run(document: Document, kind: str) -> ManifestProblem:
    """Return the problem of a valid manifest whose kind Heliograph does not run."""
    hint = (
        "write an application: agents with signals and delegations"
        if kind in KINDS
        else "helio run takes manifests of the kinds Agent and Workflow"
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
    options = {"activate_on": ["workflow:start"], "updates": "output", **manifest.options}
    if any(not each.is_warning for each in problems):  # the option may name one of the missing tools
        options.pop("must_end_with", None)
    if is_part:
        options = {key: each for key, each in options.items() if key not in _OF_RUNS} | {"on_request": True}
    prompt = options.pop("prompt", task_of if is_part else prompt_of)
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
        raise ManifestRejected([_of_option(manifest, error), *problems, *manifest.warnings]) from error
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


def bound_tools(manifest: AgentManifest, bindings: Bindings, missing: list[ManifestProblem]) -> list[Any]:
    """Return the tools of the agent, and add those without a binding to `missing`."""
    bound: dict[str, Any] = {}
    used: dict[str, Any] = {}  # MCP servers, by their labels
    declared = {each.name: each for each in manifest.servers}
    listed: dict[str, set[str]] = {}  # the tools of bound servers that the agent lists, by the label of the server
    needed: set[str] = set()
    approved: set[str] = set()  # servers with a tool whose calls require an approval: then all their calls require one
    for tool in manifest.tools:
        if not manifest.rules.permits(tool.name, *([tool.server] if tool.server else [])):
            continue
        requires = tool.needs_approval or manifest.rules.requires_approval(tool.name)
        found = bindings.tools.get(tool.name) or bindings.tools.get(tool.bound_name)
        server = None if found is not None else _server_with(tool, bindings)
        if found is not None:
            missing += other_parameters(manifest, tool, found)
            add_tool(manifest, tool, approved_tool(found, requires), bound, missing)
        elif server is not None:
            used[server.label] = server
            listed.setdefault(server.label, set()).add(tool.name)
            approved |= {server.label} if requires else set()
        elif (reference := _declared(tool, declared, bindings)) is not None:
            needed.add(reference.name)
            approved |= {reference.name} if requires else set()
        elif bindings.external:
            add_tool(manifest, tool, external_tool_of(manifest, tool, requires), bound, missing)
        else:
            missing.append(_missing_tool(manifest, tool, bindings))
    named = {tool.server for tool in manifest.tools} | {tool.name for tool in manifest.tools}
    for reference in manifest.servers:
        if reference.name not in needed and (reference.name in named or not _permits(manifest, reference)):
            continue
        names = [bound_name(each) for each in reference.tools or ()]
        if names and all(each in bound for each in names):  # the agent has all of its tools from elsewhere
            requires = manifest.rules.requires_approval(reference.name)
            bound |= {each: approved_tool(bound[each], requires) for each in names}
            continue
        requires = manifest.rules.requires_approval(reference.name, *(reference.tools or ()))
        if reference.name in bindings.tools:  # the application has a tool instead
            bound[reference.name] = approved_tool(bindings.tools[reference.name], requires)
            continue
        made = bindings.servers.get(reference.name) or server_of(
            manifest.document, reference, may_start=bindings.starts_servers
        )
        if isinstance(made, ManifestProblem):
            is_optional = bindings.external and not bindings.starts_servers and reference.name not in needed
            missing.append(replace(made, is_warning=is_optional))  # other programs run the tools
            continue
        used[reference.name] = made
        approved |= {reference.name} if requires else set()
    servers = [approved_tool(each, label in approved) for label, each in used.items()]
    # a name that is that of a server stands for all its tools
    only = {label: names for label, names in listed.items() if names.isdisjoint(bindings.servers)}
    return [*bound.values(), *(restricted_server(manifest, each, only.get(each.label, ())) for each in servers)]


def _permits(manifest: AgentManifest, reference: ServerReference) -> bool:
    """Whether the agent may use a server, or one of the tools that it lists."""
    permits = manifest.rules.permits_of_server
    return (
        permits(reference.name)
        if not reference.tools
        else any(permits(reference.name, each) for each in reference.tools)
    )


def _server_with(tool: ToolReference, bindings: Bindings) -> Any:
    """Return the bound MCP server with the tool: one of its name, or one that lists the tool."""
    for key in (tool.server, tool.name):
        if key and key in bindings.servers:
            return bindings.servers[key]
    return next(
        (each for each in bindings.servers.values() if each.tools is not None and tool.name in each.tools), None
    )


def _declared(
    tool: ToolReference, servers: Mapping[str, ServerReference], bindings: Bindings
) -> ServerReference | None:
    """Return the server of the manifest with the tool, unless it may not be started and other programs run the tool."""
    offering = (each for each in servers.values() if each.tools is not None and tool.name in each.tools)
    found = servers.get(tool.server or "") or next(offering, None)
    is_usable = found is None or bindings.starts_servers or not bindings.external
    return found if is_usable else None


def _missing_tool(manifest: AgentManifest, tool: ToolReference, bindings: Bindings) -> ManifestProblem:
    code, what = ("missing_agent", "agent") if tool.kind == "a2a" else ("missing_tool", "tool")
    known = [*bindings.tools, *bindings.servers]
    similar = get_close_matches(tool.bound_name, known, 1)
    hint = (f"did you mean {similar[0]}?" if similar else f"the application has {', '.join(known)}" if known else
            "bind it: --tools FILE.py:app names an application with this tool; --external-tools leaves it to other programs")  # fmt: skip
    problem = manifest.document.problem(
        code, f"nothing is bound to the {what} {safe_repr(tool.name)}", tool.pointer, hint
    )
    return replace(problem, binding=tool.name)


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
    option = (error.path or "").removeprefix(f"/agents/{manifest.name}/").partition("/")[0]
    own = manifest.document.value_at(_OWN)
    if error.path in ("/name", "/agents"):
        option = "name"
    pointer = f"{_OWN}/{option}"
    if not isinstance(own, dict) or option not in own:
        pointer = _PLACES.get(option, "/spec")
    message = error.message if option != "name" else error.message.replace("Heliograph", dotted(pointer), 1)
    return manifest.document.problem(error.code, message, pointer, error.hint or "correct the manifest")

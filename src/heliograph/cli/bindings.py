"""What an operator binds to manifests: the tools and agents of an application, a model, and permissions."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any

from heliograph.cli.load_application import load_app, load_object


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

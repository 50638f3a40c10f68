"""`helio signal catalog FILE.py:app`: print the signals that an application defines and emits."""

from __future__ import annotations

from argparse import Namespace

from heliograph.cli.load_application import load_app
from heliograph.cli.output import json_line, line, note
from heliograph.reactive.workflow import Workflow
from heliograph.types import JsonObject


def catalog(options: Namespace) -> int:
    entries = application_catalog(load_app(options.app).workflow)
    for entry in entries:
        if options.json:
            json_line("signal_definition", entry)
            continue
        version = f", version {entry['version']}" if entry["version"] is not None else ", no definition"
        line(f"{entry['name']}{version}")
        for text in _details(entry):
            line(f"    {text}")
    if not entries and not options.json:
        note("the application names no signals of its own; docs/reference/signals.md lists the standard signals")
    return 0


def application_catalog(workflow: Workflow) -> list[JsonObject]:
    """The signals that an application defines or emits, by name. A signal without a definition has no version and no schema."""
    agents = sorted(workflow.agents.values(), key=lambda agent: agent.name)
    names = sorted({*workflow.signals, *(name for agent in agents for name in agent.emits)})
    found: list[JsonObject] = []
    for name in names:
        definition = workflow.signals.get(name)
        woken = sorted({agent for agent, _ in workflow.wakes.match(name)})
        emitted_by = [agent.name for agent in agents if name in agent.emits]
        found.append({
            "name": name,
            "version": None if definition is None else definition.version,
            "description": None if definition is None else definition.description,
            "payload": None if definition is None else definition.schema,
            "place": None if definition is None else definition.place,
            "emitted_by": [*emitted_by],
            "activates": [*woken],
        })  # fmt: skip
    return found


def _details(entry: JsonObject) -> list[str]:
    schema = entry["payload"]
    texts = [str(entry["description"])] if entry["description"] else []
    texts.append(f"payload     {_shape(schema)}")
    for key, title in (("emitted_by", "emitted by"), ("activates", "activates")):
        agents = entry[key]
        assert isinstance(agents, list)
        texts.append(f"{title:<10}  {', '.join(map(str, agents)) or 'no agent'}")
    return [*texts, *([f"defined at  {entry['place']}"] if entry["place"] else [])]


def _shape(schema: object) -> str:
    """The keys of an object with their types; a `?` marks keys that may be missing."""
    if not isinstance(schema, dict):
        return "any"
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return _type_of(schema)
    required = schema.get("required", [])
    keys = (f"{key}{'' if key in required else '?'}: {_type_of(each)}" for key, each in properties.items())
    return f"{{{', '.join(keys)}}}"


def _type_of(schema: object) -> str:
    if not isinstance(schema, dict):
        return "any"
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if isinstance(schema.get("anyOf"), list):
        return " or ".join(_type_of(each) for each in schema["anyOf"])
    kind = str(schema.get("type", "any"))
    return f"list of {_type_of(schema['items'])}" if kind == "array" and "items" in schema else kind

"""The content of a deliverable card: text or a list of fields (L0-83), for every way a turn can end."""

from __future__ import annotations

from heliograph.types import Json, JsonObject


def deliverable_of(output: Json) -> JsonObject:
    """A text becomes text, an object its fields in order, any other value the one field `output`."""
    if isinstance(output, str):
        return {"text": output}
    # an object whose one key is `output` goes in as a value: read_output could not tell the two apart
    values = output if isinstance(output, dict) and list(output) != ["output"] else {"output": output}
    return {"fields": [{"name": name, "value": value} for name, value in values.items()]}


def deliverable_of_error(error: JsonObject) -> JsonObject:
    """The card of a turn that ended otherwise: the message as text, and the error for programs."""
    return {"text": error["message"], "error": error}


def read_output(content: JsonObject) -> Json:
    """The output that `deliverable_of` was given; None for an error's card."""
    if "error" in content:
        return None
    if "text" in content:
        return content["text"]
    fields = content["fields"]
    assert isinstance(fields, list)
    values: dict[str, Json] = {str(f["name"]): f["value"] for f in fields if isinstance(f, dict)}
    return values["output"] if list(values) == ["output"] else values

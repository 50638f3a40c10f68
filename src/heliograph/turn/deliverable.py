"""The content of a deliverable card: text or a list of fields, for every way a turn can end."""

from __future__ import annotations

from heliograph.types import Json, JsonObject


def deliverable_of(output: Json) -> JsonObject:
    """A text becomes text, an object its fields in order, any other value the one field `output`."""
    if isinstance(output, str):
        return {"text": output}
    # wrap an object whose only key is `output`, because read_output could not distinguish it
    values = output if isinstance(output, dict) and list(output) != ["output"] else {"output": output}
    return {"fields": [{"name": name, "value": value} for name, value in values.items()]}


def deliverable_of_error(error: JsonObject) -> JsonObject:
    """The card of a turn without success: the message as text, and the error for programs."""
    return {"text": error["message"], "error": error}


def read_output(content: JsonObject) -> Json:
    """The output that `deliverable_of` received; None for the card of an error."""
    if "error" in content:
        return None
    if "text" in content:
        return content["text"]
    fields = content["fields"]
    assert isinstance(fields, list)
    values: dict[str, Json] = {str(f["name"]): f["value"] for f in fields if isinstance(f, dict)}
    return values["output"] if list(values) == ["output"] else values

"""The envelope in which every control signal travels."""

from __future__ import annotations

from typing import Any, Self

import pydantic

from heliograph.control.field_types import Text, Time
from heliograph.control.signals import WireSignal, read_signal
from heliograph.control.wire_model import WireModel, as_object, read_model
from heliograph.errors import InvalidInput
from heliograph.json_pointer import pointer
from heliograph.types import JsonObject


class Envelope(WireModel):
    """A control signal on its way.

    id: the same if the envelope is sent again. source, destination: an agent, a tool, an actor, or `runtime`. trace_id: shared by all
    signals of one run. span_id: shared by a request and its responses. The signal inside has the envelope's time.
    """

    described = "an envelope"
    id: Text
    timestamp: Time
    source: Text
    destination: Text
    trace_id: Text
    span_id: Text
    signal: pydantic.InstanceOf[WireSignal]

    @pydantic.model_validator(mode="after")
    def _date_signal(self) -> Self:
        object.__setattr__(self, "signal", self.signal.model_copy(update={"timestamp": self.timestamp}))
        return self

    def to_wire(self) -> JsonObject:
        """Convert the envelope to JSON. The time stands in the envelope alone."""
        signal = {key: value for key, value in self.signal.to_wire().items() if key != "timestamp"}
        return {"envelope": {**super().to_wire(), "signal": signal}}


def read_envelope(wire: Any, path: str = "") -> Envelope:
    """Read an envelope, with the signal inside, from parsed JSON or YAML. Raises the errors of `read_signal`."""
    outer = as_object(wire, "an envelope", path)
    inside = pointer(path, "envelope")
    if set(outer) != {"envelope"}:
        raise InvalidInput("an envelope must be an object with the one key 'envelope'; put its fields there",
                           code="required_field", path=inside)  # fmt: skip
    fields = as_object(outer["envelope"], "an envelope", inside)
    if "signal" in fields:
        fields["signal"] = read_signal(fields["signal"], pointer(inside, "signal"))
    return read_model(Envelope, fields, inside)

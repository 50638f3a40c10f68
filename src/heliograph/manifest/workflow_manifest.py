"""Read a manifest of kind Workflow: its steps in the order of their dependencies, as the plan of one agent.

A step calls a tool (`kind: Task`) or delegates to an agent (`kind: Agent`). Steps that cannot be carried out are rejected by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal

from heliograph.definitions.forms import problems_in, validator_of
from heliograph.definitions.plan import DelegationStep, Plan, PlanStep, ToolStep
from heliograph.definitions.step_references import literal
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.json_pointer import escaped
from heliograph.manifest.document import Document, dotted
from heliograph.manifest.manifest_fields import ManifestFields
from heliograph.manifest.problems import ManifestProblem
from heliograph.manifest.retry_settings import read_retry
from heliograph.manifest.unsupported_inputs import REASONS_OF_STEPS, reason_at
from heliograph.manifest.workflow_expressions import reference_in, value_in
from heliograph.policy.retry import RetryPolicy
from heliograph.types import Json, JsonObject

_OF_PLANS = ("$step", "$literal")
_GROUP, _STEPS = "Parallel", ("Task", "Agent")
# Keys of a step that change which steps run. A workflow that has them is not run.
_CONTROL = ("condition", "branches", "else", "loop", "continue_on_error", "parallel_with", "on_error")
_READ = ("id", "name", "description", "kind", "ref", "inline", "input", "depends_on", "labels", "parallel", "steps",
         "retry", "timeout_seconds")  # fmt: skip
_OF_CALLS = ("ref", "inline", "input", "retry", "timeout_seconds")  # without an effect on a group
_INFORMATION = ("/apiVersion", "/kind", "/metadata", "/spec/description")
_SUFFIX = re.compile(r"(\.ossa)?\.(ya?ml|json)$")


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """A step. kind: whether it calls a tool or delegates. name: of the tool or agent. ref: a file with the agent's manifest, or None.

    needs: the ids of the steps that come before it. timeout_seconds, retry: of its call; None for those of the tool or agent.
    """

    id: str
    kind: Literal["Task", "Agent"]
    name: str
    pointer: str
    input: Json
    ref: str | None = None
    needs: tuple[str, ...] = ()
    timeout_seconds: float | None = None
    retry: RetryPolicy | None = None


@dataclass(frozen=True, slots=True)
class WorkflowManifest:
    """A workflow that a manifest describes. steps: in the order in which they run. inputs: returns the problems of a run's state."""

    name: str
    document: Document
    steps: tuple[WorkflowStep, ...]
    variables: Mapping[str, Json]
    inputs: Callable[[JsonObject], list[str]]
    timeout_seconds: float | None

    def plan(self, given: JsonObject, targets: Mapping[str, str]) -> Plan:
        """Return the plan of a run. given: its state. targets: the name of the tool or agent of each step, by the step's id.

        Raises InvalidInput (`invalid_state`, `invalid_reference`) for an input that does not match `inputs`, or lacks what a step needs.
        """
        if problems := self.inputs(given):
            raise InvalidInput(f"the input of the workflow is invalid: {'; '.join(problems)}", code="invalid_state")
        numbers = {step.id: n for n, step in enumerate(self.steps, 1)}
        steps: list[PlanStep] = []
        for step in self.steps:
            value = self._resolved(step.input, given, numbers)
            name = targets[step.id]
            kind = ToolStep if step.kind == "Task" else DelegationStep
            steps.append(kind(name, value, timeout_seconds=step.timeout_seconds, retry=step.retry))
        return Plan(steps, self.name)

    def _resolved(self, value: Json, given: JsonObject, numbers: Mapping[str, int]) -> Any:
        """Return an input with plan references and values in place of its expressions."""
        if isinstance(value, dict):
            if not value.keys().isdisjoint(_OF_PLANS):
                return literal(value)  # manifests have no references of plans
            return {key: self._resolved(each, given, numbers) for key, each in value.items()}
        if isinstance(value, list):
            return [self._resolved(each, given, numbers) for each in value]
        reference = reference_in(value) if isinstance(value, str) else None
        if reference is None:
            return value
        if reference.step is not None:
            return {"$step": numbers[reference.step], "path": reference.pointer}
        return literal(value_in(given if reference.source == "input" else dict(self.variables), reference))


def gather_workflow(document: Document) -> tuple[WorkflowManifest, list[ManifestProblem]]:
    """Read a manifest of kind Workflow. Return it with all steps and keys that cannot be carried out, and warnings."""
    fields = ManifestFields(document, {})
    name = str(fields.value("/metadata/name"))
    steps = [*_steps(fields, "/spec/steps"), *_composed(fields)]
    if not steps:
        fields.reject("not_runnable", "the workflow has no steps", "/spec", "write spec.steps")
    if (retry := read_retry(fields, "/spec/error_handling/retry_policy")) is not None:
        steps = [replace(step, retry=step.retry or retry) for step in steps]
    variables = fields.whole("/spec/context/variables")
    inputs = read_inputs(fields, "/spec/inputs")
    timeout = fields.number("/spec/timeout_seconds", low=1, high=86_400)
    if fields.value("/spec/error_handling/on_failure") not in (None, "halt"):
        fields.warn("no_effect", "a failed step ends the workflow, and spec.error_handling has no effect", "/spec/error_handling/on_failure",
                    "use the cleanup functions of an application")  # fmt: skip
    for pointer, trigger in fields.items("/spec/triggers"):
        if trigger == {"type": "manual"}:
            fields.whole(pointer)
    warn_of_unread(fields, "Workflow", _INFORMATION)
    ordered = _in_order(fields, [_with_references(fields, step) for step in steps])
    made = WorkflowManifest(
        name, document, tuple(ordered), variables if isinstance(variables, dict) else {}, inputs, timeout
    )
    return made, fields.problems


def read_inputs(fields: ManifestFields, place: str) -> Callable[[JsonObject], list[str]]:
    """Return a function that lists the problems of a run's state under the schema at a pointer."""
    schema = fields.whole(place)
    try:
        validator = validator_of("inputs", schema if isinstance(schema, dict) else {}, place)
    except InvalidInput as error:
        fields.reject(error.code, error.message, place, "write a JSON Schema")
        return lambda given: []
    return lambda given: problems_in(validator, given, "input")


def warn_of_unread(fields: ManifestFields, kind: str, information: Collection[str]) -> None:
    """Warn of each value that nothing has read and that is no information for people."""
    for pointer in fields.unread(lambda each: each in information):
        reason = reason_at(pointer, REASONS_OF_STEPS[kind])
        fields.warn(
            "no_effect", f"{dotted(pointer)} has no effect; {reason}", pointer, "remove it, or ignore this warning"
        )


def _steps(fields: ManifestFields, place: str) -> Iterator[WorkflowStep]:
    """Yield the steps of a list. Those of a group without an order follow one another."""
    for pointer, item in fields.items(place):
        fields.whole(pointer)
        if not isinstance(item, dict):
            fields.reject("wrong_type", "a step is an object", pointer, "write id, kind and ref")
            continue
        if unsupported := [key for key in _CONTROL if item.get(key) not in (None, False)]:
            fields.reject("not_runnable", f"Heliograph does not carry out '{unsupported[0]}' of a step", f"{pointer}/{unsupported[0]}",
                          "write an application: agents with guards and signals")  # fmt: skip
            yield _step(
                fields, pointer, item if item.get("kind") in _STEPS else {**item, "kind": "Task"}
            )  # others may need it
            continue
        for key in sorted(item.keys() - {*_READ, *_CONTROL}):
            fields.warn("no_effect", f"'{safe_repr(key)}' of a step has no effect", f"{pointer}/{escaped(key)}", "remove it, or ignore this warning")  # fmt: skip
        kind = item.get("kind")
        if kind == _GROUP:
            for key in (each for each in _OF_CALLS if item.get(each) is not None):
                fields.warn(
                    "no_effect",
                    f"'{key}' of a group has no effect",
                    f"{pointer}/{key}",
                    "write it at the steps of the group",
                )
            yield from _steps(fields, f"{pointer}/parallel")
            yield from _steps(fields, f"{pointer}/steps")
        elif kind in _STEPS:
            yield _step(fields, pointer, item)
        else:
            fields.reject("not_runnable", f"Heliograph does not carry out steps of kind {safe_repr(str(kind))}", f"{pointer}/kind",
                          "write kind: Task or kind: Agent")  # fmt: skip
            yield _step(fields, pointer, {**item, "kind": "Task"})


def _step(fields: ManifestFields, pointer: str, item: Mapping[str, Any]) -> WorkflowStep:
    ref, inline, needs = item.get("ref"), item.get("inline"), item.get("depends_on")
    name = str(item.get("id"))
    if isinstance(ref, str) and ref:
        name = _SUFFIX.sub("", PurePosixPath(ref).name)
    elif isinstance(inline, dict):
        capabilities = inline.get("capabilities")
        name = str(capabilities[0]) if isinstance(capabilities, list) and capabilities else name
    given = item.get("input")
    return WorkflowStep(
        str(item.get("id")), item["kind"], name, pointer, given if given is not None else {},
        ref if isinstance(ref, str) and _SUFFIX.search(ref) else None,
        tuple(map(str, needs)) if isinstance(needs, list) else (),
        fields.number(f"{pointer}/timeout_seconds", low=0.001, high=86_400), read_retry(fields, f"{pointer}/retry"),
    )  # fmt: skip


def _composed(fields: ManifestFields) -> Iterator[WorkflowStep]:
    """Yield the steps of `composition`: agents one after another, each with the projected output of the one before."""
    before: str | None = None
    previous: list[Json] | None = None
    for n, (pointer, item) in enumerate(fields.items("/composition/sequential"), 1):
        fields.whole(pointer)
        if not isinstance(item, dict) or not isinstance(item.get("agent"), str):
            fields.reject("required_field", "an entry of composition has no agent", pointer, "name its agent")
            continue
        project = item.get("project")
        output = f"steps.{before}.output"
        value: Json = f"${{{{ {output} }}}}" if before else "${{ workflow.input }}"
        if before and previous is not None:
            value = {str(key): f"${{{{ {output}.{key} }}}}" for key in previous}
        previous = project if isinstance(project, list) and project else None
        before = f"agent-{n}"
        yield WorkflowStep(before, "Agent", str(item["agent"]), pointer, value)
    agents = fields.mapping("/composition/parallel").get("agents")
    if isinstance(agents, list) and agents:
        fields.whole("/composition/parallel")
        for n, agent in enumerate(agents, 1):
            yield WorkflowStep(
                f"parallel-{n}", "Agent", str(agent), f"/composition/parallel/agents/{n - 1}", "${{ workflow.input }}"
            )


def _with_references(fields: ManifestFields, step: WorkflowStep) -> WorkflowStep:
    """Return a step that also needs the steps whose outputs it uses; reject its other expressions."""
    needs = list(step.needs)
    for pointer, text in _texts(step.input, f"{step.pointer}/input"):
        try:
            reference = reference_in(text)
        except InvalidInput as error:
            fields.reject(error.code, error.message, pointer, "write an application for conditions and computed values")
            continue
        if reference is not None and reference.step is not None:
            needs.append(reference.step)
    return replace(step, needs=tuple(dict.fromkeys(needs)))


def _texts(value: Json, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield pointer, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, f"{pointer}/{escaped(key)}")
    elif isinstance(value, list):
        for n, each in enumerate(value):
            yield from _texts(each, f"{pointer}/{n}")


def _in_order(fields: ManifestFields, steps: list[WorkflowStep]) -> list[WorkflowStep]:
    """Return the steps so that each comes after those that it needs, otherwise in the order of the file."""
    ids = [step.id for step in steps]
    for n, step in enumerate(steps):
        for unknown in set(step.needs) - set(ids):
            fields.reject("unknown_step", f"step {safe_repr(step.id)} needs {safe_repr(unknown)}, which is no step of the workflow", step.pointer,
                          f"the steps are {', '.join(ids)}")  # fmt: skip
        if step.id in ids[:n]:
            fields.reject(
                "duplicate_item",
                f"two steps have the id {safe_repr(step.id)}",
                f"{step.pointer}/id",
                "rename one of them",
            )
    waiting, ordered, done = list(steps), list[WorkflowStep](), set[str]()
    while waiting:
        ready = [each for each in waiting if done.issuperset(set(each.needs) & set(ids))]
        if not ready:
            fields.reject("cycle", f"step {safe_repr(waiting[0].id)} needs itself, through other steps", waiting[0].pointer,
                          "remove one of the dependencies")  # fmt: skip
            return ordered + waiting
        waiting.remove(ready[0])
        ordered.append(ready[0])
        done.add(ready[0].id)
    return ordered

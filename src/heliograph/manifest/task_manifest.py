"""Read a manifest of kind Task: one call of a tool, as a workflow with one step. What decides about the call is rejected by name."""

from __future__ import annotations

from heliograph.manifest.document import Document
from heliograph.manifest.manifest_fields import ManifestFields
from heliograph.manifest.problems import ManifestProblem
from heliograph.manifest.workflow_manifest import WorkflowManifest, WorkflowStep, read_inputs, warn_of_unread
from heliograph.policy.retry import RetryPolicy

_INFORMATION = ("/apiVersion", "/kind", "/metadata", "/spec/description", "/spec/execution/type")
_REJECTED = ("preconditions", "postconditions", "dependencies")
_WHOLE_INPUT = "${{ workflow.input }}"


def gather_task(document: Document) -> tuple[WorkflowManifest, list[ManifestProblem]]:
    """Read a manifest of kind Task. Return it with all keys that cannot be carried out, and warnings.

    The tool has the name of its first capability, or else that of the task. The state of a run is its arguments.
    """
    fields = ManifestFields(document, {})
    name = str(fields.value("/metadata/name"))
    tools = fields.texts("/spec/capabilities")
    if len(tools) > 1:
        fields.reject(
            "not_runnable",
            "a task with several capabilities is no call of one tool",
            "/spec/capabilities",
            _APPLICATION,
        )
    for key in _REJECTED:
        if fields.items(f"/spec/{key}"):
            fields.reject(
                "not_runnable", f"Heliograph does not carry out '{key}' of a task", f"/spec/{key}", _APPLICATION
            )
    if fields.flag("/spec/batch/enabled"):
        fields.reject("not_runnable", "Heliograph does not carry out 'batch' of a task", "/spec/batch", _APPLICATION)
    retry: RetryPolicy | None = None
    reaction = fields.value("/spec/error_handling/on_error")
    if reaction in ("retry", "fail"):
        retry = RetryPolicy(retryable_errors="recoverable", enabled=reaction == "retry")
    elif reaction is not None:
        fields.reject("not_runnable", "Heliograph does not carry out this reaction to an error", "/spec/error_handling/on_error",
                      "write fail or retry, or use the fallback of a tool")  # fmt: skip
    seconds = fields.number("/spec/execution/timeout_seconds", low=0.001, high=86_400)
    tool = tools[0] if tools else name
    step = WorkflowStep("task", "Task", tool, "/spec", _WHOLE_INPUT, timeout_seconds=seconds, retry=retry)
    inputs = read_inputs(fields, "/spec/input")
    warn_of_unread(fields, "Task", _INFORMATION)
    return WorkflowManifest(name, document, (step,), {}, inputs, None), fields.problems


_APPLICATION = "write an application: agents with guards and signals"

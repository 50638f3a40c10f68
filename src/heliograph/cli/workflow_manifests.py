"""Turn a manifest of kind Workflow or Task into an application: one agent whose plan has the steps, and the agents to which it delegates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heliograph.cli.agent_manifests import add_agent, missing_of, parse_agent, valid_agent
from heliograph.cli.bindings import Bindings
from heliograph.cli.files import read_file
from heliograph.cli.tool_binding import bound_tools
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.manifest.agent_manifest import AgentManifest, short_name
from heliograph.manifest.agent_tools import ToolReference
from heliograph.manifest.document import Document
from heliograph.manifest.ossa import validate_ossa
from heliograph.manifest.problems import ManifestProblem, ManifestRejected, gathered
from heliograph.manifest.reader import kind_of
from heliograph.manifest.task_manifest import gather_task
from heliograph.manifest.workflow_manifest import WorkflowManifest, WorkflowStep, gather_workflow

if TYPE_CHECKING:
    from heliograph.app import Heliograph
    from heliograph.definitions.plan import Plan
    from heliograph.execution.phase_context import PhaseContext

STEP_KINDS = ("Workflow", "Task")


def bind_workflow(
    document: Document, path: Path, bindings: Bindings
) -> tuple[Heliograph | None, list[ManifestProblem]]:
    """Return the application of a workflow or task, and warnings; or None, and what is missing. path: of its file; agents stand beside it.

    Raises ManifestRejected for an invalid manifest, and for steps that cannot be carried out, with the problems of the agents' manifests.
    """
    problems = [*document.problems, *validate_ossa(document)]
    known = {each.pointer for each in problems if not each.is_warning}
    workflow, further = (gather_task if kind_of(document) == "Task" else gather_workflow)(document)
    problems += [each for each in further if each.is_warning or each.pointer not in known]
    binding = _Binding(workflow, path, bindings)
    errors = [each for each in problems if not each.is_warning]
    if errors:
        raise ManifestRejected([*problems, *binding.missing([each.pointer for each in errors])])
    application = binding.application()
    return application, list(dict.fromkeys([*problems, *binding.problems]))


class _Binding:
    """The binding of one workflow. problems: what is missing, and warnings of its agents."""

    def __init__(self, workflow: WorkflowManifest, path: Path, bindings: Bindings):
        from heliograph.app import Heliograph

        self._workflow = workflow
        self._folder = path.parent
        self._bindings = bindings
        self._application = Heliograph(short_name(workflow.name).lower())
        self._targets: dict[str, str] = {}  # by the id of a step
        self._agents: dict[str, str] = {}  # the names of agents by their files
        self.problems: list[ManifestProblem] = []

    def application(self) -> Heliograph | None:
        """Return the application; None if something is missing. Raises ManifestRejected for options that no agent can have."""
        tools = self._tools([step for step in self._workflow.steps if step.kind == "Task"])
        for step in self._workflow.steps:
            if step.kind == "Agent":
                with gathered(self.problems):
                    self._add_agent_of(step)
        if any(not each.is_warning for each in self.problems):
            return None
        try:
            self._add_main(tools)
            self._application.workflow  # noqa: B018  checked as a whole
        except InvalidInput as error:
            raise ManifestRejected(
                [
                    self._workflow.document.problem(
                        error.code, error.message, "/spec", error.hint or "correct the workflow"
                    )
                ]
            ) from None
        return self._application

    def missing(self, rejected: Sequence[str]) -> list[ManifestProblem]:
        """Return what an invalid workflow lacks, and the problems of its agents' manifests. rejected: the pointers of its errors."""
        whole = [
            step for step in self._workflow.steps if step.kind == "Task" and not _is_within(rejected, step.pointer)
        ]
        self._tools(whole, asks=False)
        for step in self._workflow.steps:
            if step.kind == "Agent" and step.name not in self._bindings.agents:
                with gathered(self.problems):
                    if (path := self._file_of(step)) is None:
                        self.problems.append(self._missing_agent(step))
                    else:
                        manifest = self._manifest_at(path)
                        self.problems += [*manifest.warnings, *missing_of(manifest, self._bindings)]
        return self.problems

    def _tools(self, steps: Sequence[WorkflowStep], *, asks: bool = True) -> list[Any]:
        """Return the tools of the steps, and note those without a binding. asks: see `bound_tools`."""
        named = {step.name: ToolReference(step.name, step.pointer) for step in steps}
        self._targets |= {step.id: named[step.name].bound_name for step in steps}
        wanted = AgentManifest(self._workflow.name, self._workflow.document, tools=tuple(named.values()))
        return bound_tools(wanted, self._bindings, self.problems, asks=asks)

    def _add_agent_of(self, step: WorkflowStep) -> None:
        """Add the agent of a step: one of the application, or else that of the manifest to which the step refers."""
        if step.name in self._bindings.agents:
            self._add_known(step.name)
            self._targets[step.id] = step.name
        elif (path := self._file_of(step)) is not None:
            self._targets[step.id] = self._agent_of_file(path)
        else:
            self.problems.append(self._missing_agent(step))

    def _missing_agent(self, step: WorkflowStep) -> ManifestProblem:
        similar = get_close_matches(step.name, [*self._bindings.agents], 1)
        hint = (
            f"did you mean {similar[0]}?"
            if similar
            else (
                "write its manifest to the file that ref names, or bind it: --tools FILE.py:app names an application with this agent"
            )
        )
        problem = self._workflow.document.problem(
            "missing_agent", f"nothing is bound to the agent {safe_repr(step.name)}", step.pointer, hint
        )
        return replace(problem, binding=step.name)

    def _add_known(self, name: str) -> None:
        """Add an agent of the application of --tools, and those to which it delegates. No signal activates them here."""
        if name in self._application._agents:
            return
        spec = self._bindings.agents[name]
        self._application.add(replace(spec, activate_on=(), activate_when_all=(), updates=()))
        for each in spec.agents:
            self._add_known(each)

    def _file_of(self, step: WorkflowStep) -> Path | None:
        """The file to which a step refers, beside that of the workflow; None without one. Raises ManifestRejected for one elsewhere."""
        if step.ref is None or not _is_file(path := self._folder / step.ref):
            return None
        if not path.resolve().is_relative_to(self._folder.resolve()):
            raise ManifestRejected(
                [
                    self._workflow.document.problem(
                        "not_allowed",
                        f"{safe_repr(step.ref)} is outside of the folder of the workflow",
                        f"{step.pointer}/ref",
                        "move the file into it",
                    )
                ]
            )
        return path

    def _manifest_at(self, path: Path) -> AgentManifest:
        return valid_agent(parse_agent(read_file(path), str(path), self._bindings), self._bindings)

    def _agent_of_file(self, path: Path) -> str:
        """Add the agent of a manifest, and return its name. Raises ManifestRejected."""
        key = str(path.resolve())
        if key not in self._agents:
            manifest = self._manifest_at(path)
            self.problems += [*manifest.warnings, *add_agent(self._application, manifest, self._bindings, is_part=True)]
            self._agents[key] = manifest.name
        return self._agents[key]

    def _add_main(self, tools: list[Any]) -> None:
        """Add the agent whose plan has the steps."""
        from heliograph.definitions.hooks import Agent

        workflow, targets = self._workflow, self._targets

        class Steps(Agent):
            def plan(self, context: PhaseContext) -> Plan:
                return workflow.plan(context.document, targets)

        options: dict[str, Any] = {} if workflow.timeout_seconds is None else {"ttl_seconds": workflow.timeout_seconds}
        agents = list(dict.fromkeys(targets[step.id] for step in workflow.steps if step.kind == "Agent"))
        self._application.agent(
            name=short_name(workflow.name),
            activate_on=["workflow:start"],
            updates="output",
            tools=tools,
            agents=agents,
            **options,
        )(Steps)


def _is_within(pointers: Sequence[str], pointer: str) -> bool:
    """Whether one of the pointers leads to the value at `pointer`, or into it."""
    return any(each == pointer or each.startswith(f"{pointer}/") for each in pointers)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False

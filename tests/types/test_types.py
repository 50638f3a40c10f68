"""Types reach the user: mypy and pyright accept a strict file of a user, and find each mistake in a copy of it."""

from __future__ import annotations

import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from heliograph import Heliograph
from heliograph.definitions.agent import define_agent
from heliograph.definitions.agent_options import FunctionAgentOptions, PromptAgentOptions

USER_FILE = Path(__file__).parent / "user_file.py"

# What a user gets wrong: the text in the file, and what stands there instead.
MISTAKES = {
    "an unknown field of the state": ("return len(ctx.state.text", "return len(ctx.state.txet"),
    "a field of the state has another type": ("-> int:\n        return ctx.state.words", "-> int:\n        return ctx.state.text"),
    "the context of another application": ("def counter(ctx: Context[Post])", "def counter(ctx: Context[Review])"),
    "a guard in a lambda reads an unknown field": ("when=lambda post: post.words > 5", "when=lambda post: post.wrds > 5"),
    "a guard takes another state": ("def is_long(post: Post)", "def is_long(post: Counted)"),
    "a guard that waits": ("def is_long(post", "async def is_long(post"),
    "a guard reads an unknown key": ('note["text"] == ""', 'note["txt"] == ""'),
    "a guard returns no boolean": ("return post.words > 2", "return post.text"),
    "a reducer of one value": ("lambda old, new: old + new", "lambda old: old"),
    "end_when reads an unknown field": ("end_when=lambda post: post.words", "end_when=lambda post: post.wrds"),
    "a misspelt option of an agent": ('updates="words")', 'update="words")'),
    "a misspelt option of a prompt agent": ('on_request=True)', 'on_requests=True)'),
    "an unknown priority": ('priority="high"', 'priority="urgent"'),
    "an unknown effect of a tool": ('effect="idempotent"', 'effect="safe"'),
    "a timeout that is text": ("timeout_seconds=5", 'timeout_seconds="5"'),
    "a tool called with another type": ('mail("Hello")', "mail(5)"),
    "a tool called without its argument": ('mail("Hello")', "mail()"),
    "deps of a tool without this attribute": ("context.deps.sender)", "context.deps.sendr)"),
    "deps of a context without this attribute": ("{ctx.deps.sender}", "{ctx.deps.sendr}"),
    "an unknown field of an answer": ("{review.reason}", "{review.reasons}"),
    "an unknown field of a declared result": ("{quote.words + 1}", "{quote.word + 1}"),
    "the answer to a plain question is text": ("{name.upper()}", "{name + 1}"),
    "an unknown field of the result of a step": ("return charged.words", "return charged.word"),
    "an argument of a step by name has another type": ("amount=3)", 'amount="3")'),
    "a step without an argument": ('ctx.step("send", mail, "Hello")', 'ctx.step("send", mail)'),
    "an unknown effect of a step": ('Step("charge", effect="pure"', 'Step("charge", effect="safe"'),
    "a timeout of a step that is text": ("\"pure\", timeout=5)", "\"pure\", timeout=\"5\")"),
    "a transactional step whose argument has another type": ("book, 5)", 'book, "5")'),
    "an unknown field of the output of an agent": ("return len(review.reason)", "return len(review.reasons)"),
    "the outputs of a map have another type": ("str, list[int], Any]", "str, list[str], Any]"),
    "an unknown field of the state in a test": ("return tested.state.verdict", "return tested.state.verdct"),
    "a limit of children that is text": ("limit=2", 'limit="2"'),
    "a delegation to a number": ("ctx.delegate(title)", "ctx.delegate(5)"),
    "an unknown field of the output of a child": ("each.output.reason for", "each.output.reasons for"),
    "the output of a child that may have failed": ("for each in reviews if each.output is not None]", "for each in reviews]"),
    "the results of children have another type": ("tuple[list[CallResult[Review]],", "tuple[list[CallResult[str]],"),
    "an unknown field of the output of a call": ("sum(each.output.words", "sum(each.output.word"),
    "a misspelt option of a delegation": ('Delegation(editor, priority="low")', 'Delegation(editor, prio="low")'),
    "a delegation among several to a number": ("Delegation(title),", "Delegation(5),"),
    "an unknown effect of a call": ('Call("other", effect="pure")', 'Call("other", effect="safe")'),
    "a message that is no text": ('session.send("Hello")', "session.send(5)"),
    "an unknown field of a reply": ("return reply.text", "return reply.txt"),
    "a name that the root does not have": ("    ToolContext,\n", "    ToolContxt as ToolContext,\n"),
    "a payload of another type": ("ctx.emit(counted, Counted(words=", "ctx.emit(counted, Review(good=True, reason="),
    "the payload of a definition is no object": ('ctx.emit(noted, {"text": "a title"})', 'ctx.emit(noted, "a title")'),
    "the output of an agent's function has another type": ("counter(ctx) + 1", "counter(ctx).upper()"),
    "a prompt of another state": ("def request(ctx: Context[Post])", "def request(ctx: Context[Review])"),
    "a hook of another application": ("async def judge(ctx: PhaseContext[Post])", "async def judge(ctx: PhaseContext[Review])"),
    "a method of another application": ("async def act(self, ctx: PhaseContext[Post])", "async def act(self, ctx: PhaseContext[Review])"),
    "a method that reads an unknown field": ("[ctx.state.verdict]", "[ctx.state.verdct]"),
    "a method of an application with other deps": ("ctx: PhaseContext[Any, Clients]", "ctx: PhaseContext[Any, Review]"),
    "a method of the context of another application": ("async def reflect(self, ctx: Context[Post])", "async def reflect(self, ctx: Context[Review])"),
    "a method without a context": ("def plan(self, ctx: PhaseContext)", "def plan(self)"),
    "a hook that reads an unknown field": ("print(ctx.outcome, ctx.state.words)", "print(ctx.outcome, ctx.state.wrds)"),
    "a hook of a model agent that reads an unknown attribute": ("GoalAchieved(output=ctx.iteration)", "GoalAchieved(output=ctx.iterations)"),
    "a signal that is followed has no such attribute": ("each.name async for each in known", "each.nam async for each in known"),
    "a prompt that is no text": ("str:\n    return ctx.state.text\n\n\nreviewer", "int:\n    return ctx.state.words\n\n\nreviewer"),
    "a subscriber of a pattern takes no signal": ("def keep(signal: Signal)", "def keep(signal: int)"),
    "a subscriber of another payload": ("signal: Signal[Counted]", "signal: Signal[Review]"),
    "a run with another state": ('app.run(Post(text="one two"))', "app.run(Review(good=True, reason=''))"),
    "an unknown field of the result": ("result.state.verdict", "result.state.verdicts"),
    "the output of a prompt agent has another type": ("assert_type(reviewer, AgentSpec[Review])", "assert_type(reviewer, AgentSpec[str])"),
}  # fmt: skip


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the user without a mistake, and one copy for each mistake."""
    folder = tmp_path_factory.mktemp("types")
    text = USER_FILE.read_text()
    (folder / "right.py").write_text(text)
    for n, (right, wrong) in enumerate(MISTAKES.values()):
        assert text.count(right) == 1, right
        (folder / f"mistake_{n}.py").write_text(text.replace(right, wrong))
    return folder


@pytest.mark.more
@pytest.mark.timeout(300)  # each checker reads a copy of the file for each mistake
def test_mypy_accepts_the_file_and_finds_each_mistake(copies: Path) -> None:
    found = _run(copies, "-m", "mypy", "--strict", "--no-incremental", "--no-error-summary", ".")
    _check_found(copies, found, re.compile(r"^(\w+)\.py:(\d+): error:", re.MULTILINE))


@pytest.mark.more
@pytest.mark.timeout(300)
def test_pyright_accepts_the_file_and_finds_each_mistake(copies: Path) -> None:
    settings = '{"typeCheckingMode": "strict", "reportMissingTypeStubs": false, "reportUnknownLambdaType": false}'
    (copies / "pyrightconfig.json").write_text(settings)
    found = _run(copies, "-m", "basedpyright", "--pythonpath", sys.executable)
    _check_found(copies, found, re.compile(r"(\w+)\.py:(\d+):\d+ - error:"))


def test_applications_of_the_file_are_valid_when_they_run() -> None:
    values = runpy.run_path(str(USER_FILE))
    agents = [list(values[name].workflow.agents) for name in ("app", "notes", "anything")]
    assert agents == [
        [
            "counter",
            "editor",
            "cashier",
            "lead",
            "title",
            "Critic",
            "Chief",
            "Clerk",
            "desk",
            "reviewer",
            "writer",
            "critics",
        ],
        ["first"],
        ["second"],
    ]


def test_options_of_agents_as_types_are_those_of_the_methods() -> None:
    shared = {"name", "when", "self"}
    function = set(inspect.signature(Heliograph.agent).parameters) - shared - {"misplaced"}
    prompt = (
        set(inspect.signature(Heliograph.prompt_agent).parameters)
        - shared
        - {"prompt", "model", "output", "system", "unknown"}
    )
    assert function == set(FunctionAgentOptions.__annotations__)
    assert prompt == set(PromptAgentOptions.__annotations__)
    known = set(inspect.signature(define_agent).parameters)
    assert function <= known | {"model"}
    assert prompt <= known


def _run(folder: Path, *command: str) -> str:
    ended = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode in (0, 1), ended.stderr
    return ended.stdout


def _check_found(folder: Path, output: str, errors: re.Pattern[str]) -> None:
    """Check that the right file has no error, and each other file one near the line of its mistake."""
    lines: dict[str, set[int]] = {}
    for file, line in errors.findall(output):
        lines.setdefault(file, set()).add(int(line))
    assert "right" not in lines, output
    right = (folder / "right.py").read_text().splitlines()
    for n, mistake in enumerate(MISTAKES):
        copy = (folder / f"mistake_{n}.py").read_text().splitlines()
        changed = next(i for i, pair in enumerate(zip(right, copy, strict=True), 1) if pair[0] != pair[1])
        assert lines.get(f"mistake_{n}"), f"not found: {mistake} (line {changed})"

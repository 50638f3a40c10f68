import math
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import pytest
import typing_extensions
from pydantic import BaseModel, Field, RootModel, Secret, SecretBytes, SecretStr

from heliograph import Heliograph
from heliograph.definitions.agent import decided, define_agent
from heliograph.definitions.templates import placeholders, substitute
from heliograph.errors import InvalidInput
from heliograph.harness.scripted import ScriptedModel
from tests.rules.reactive_kit import START, nothing


class Case(NamedTuple):
    """A definition, and the error that it raises; `text` is a part of the message."""

    write: Callable[[], Any]
    code: str
    path: str
    text: str


def rejected(case: Case) -> None:
    with pytest.raises(InvalidInput) as caught:
        case.write()
    assert (caught.value.code, caught.value.path) == (case.code, case.path)
    assert case.text in caught.value.message


def each_case(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[f"{n}: {case.text[:40]}" for n, case in enumerate(cases)])


def app(**options: Any) -> Heliograph:
    return Heliograph("press", **options)


def given(**options: Any) -> Callable[[], Any]:
    """An agent `a` with these options, and a function that is right."""
    return lambda: app().agent(**{"name": "a", "activate_on": START, **options})(nothing)


def running(function: Any, **options: Any) -> Callable[[], Any]:
    return lambda: app().agent(activate_on=START, **options)(function)


def prompting(prompt: Any, name: Any = "a", **options: Any) -> Callable[[], Any]:
    return lambda: app().prompt_agent(name, prompt, activate_on=START, **options)


def delegate_to_b() -> None:
    """A tool with the name of a delegation."""


def ask_human() -> None:
    """A tool with the name of the question to a person."""


class Instance:
    def __call__(self, _context: Any) -> None:
        """Still a valid agent, once it has a name."""


class Waits:
    async def __call__(self, _value: Any) -> bool:
        return True


class OneArgument:
    def __init__(self, _context: Any) -> None:
        """As a function of the context would be called."""


async def waits(_value: Any) -> bool:
    return True


def yields(_value: Any) -> Any:
    yield 1


async def yields_later(_value: Any) -> Any:
    yield 1


def two(_first: Any, _second: Any) -> None: ...


def by_name(_context: Any, *, depth: int) -> None: ...


# ── Agents ──


@each_case([
    Case(lambda: app().agent(nothing), "wrong_type", "/agents", "not nothing; write @app.agent(activate_on=[...])"),  # type: ignore[call-overload]
    Case(lambda: app().agent("a"), "wrong_type", "/agents", "arguments of agent must be passed by name, not 'a'"),  # type: ignore[call-overload]
    Case(running(Instance()), "required_field", "/agents", "no name of its own; write @app.agent(name='...'"),
    Case(running(partial(two, 1)), "required_field", "/agents", "no name of its own; write @app.agent(name='...'"),
    Case(running(lambda _context: 1), "required_field", "/agents", "no name of its own; write @app.agent(name='...'"),
    Case(running(5), "wrong_type", "/agents", "an agent must be a function of the context, not 5"),
    Case(running(5, name="a"), "wrong_type", "/agents/a/run", "agent a must be a function of the context, not 5"),
    Case(running(OneArgument), "wrong_type", "/agents/OneArgument/run", "the class OneArgument; give a function"),
    Case(running(lambda: 1, name="a"), "wrong_type", "/agents/a/run", "takes only 0; add the missing parameters"),
    Case(running(two), "wrong_type", "/agents/two/run", "needs 2 arguments; fill in the rest with defaults"),
    Case(running(by_name), "wrong_type", "/agents/by_name/run", "takes depth by name only; give a default"),
    Case(running(yields), "wrong_type", "/agents/yields/run", "is a generator: return the value"),
    Case(running(yields_later), "wrong_type", "/agents/yields_later/run", "is a generator: return the value"),
    Case(given(name=0), "invalid_identifier", "/agents", "not 0"),
    Case(given(name=""), "invalid_identifier", "/agents", "not ''"),
    Case(given(activate_on=5), "wrong_type", "/agents/a/activate_on", "must be a list of strings, not 5"),
    Case(given(activate_on=[5]), "wrong_type", "/agents/a/activate_on", "agent a: activate_on: a pattern must be a string"),
    Case(given(activate_on={"x"}), "wrong_type", "/agents/a/activate_on", "must be a list of strings, not {'x'}"),
    Case(given(activate_on=["a b"]), "invalid_character", "/agents/a/activate_on", "U+0020 at position 1"),
    Case(given(emits=None), "wrong_type", "/agents/a/emits", "must be a list of strings, not None"),
    Case(given(emits=["x", "x"]), "duplicate_entry", "/agents/a/emits", "has 'x' twice; remove one of them"),
    Case(given(updates=5), "wrong_type", "/agents/a/updates", "must be a list of strings, not 5"),
    Case(given(updates=["x", "x"]), "duplicate_entry", "/agents/a/updates", "has 'x' twice"),
    Case(given(updates=[5]), "invalid_state_key", "/agents/a/updates", "agent a: updates: a key of the state must be"),
    Case(given(updates=""), "invalid_state_key", "/agents/a/updates", "not ''"),
    Case(given(updates="a:b"), "invalid_state_key", "/agents/a/updates", "a part of the signal state:<key>:changed"),
    Case(given(updates="größe"), "invalid_state_key", "/agents/a/updates", "put other names one level deeper"),
    Case(given(updates="x" * 187), "invalid_state_key", "/agents/a/updates", "1 to 186 letters"),
    Case(given(when=5), "wrong_type", "/agents/a/when", "a function of the state or the state and the signal, not 5"),
    Case(given(when=waits), "wrong_type", "/agents/a/when", "returns without waiting; write def, not async def"),
    Case(given(when=Waits()), "wrong_type", "/agents/a/when", "returns without waiting"),
    Case(given(when=yields), "wrong_type", "/agents/a/when", "is a generator"),
    Case(given(when=by_name), "wrong_type", "/agents/a/when", "takes depth by name only"),
    Case(given(max_attempts=2.7), "wrong_type", "/agents/a/max_attempts", "a whole number, not 2.7"),
    Case(given(max_attempts="5"), "out_of_range", "/agents/a/max_attempts", "from 1 to 1000, not '5'"),
    Case(lambda: app().add("a"), "wrong_type", "/agents", "the argument of add must be the result of define_agent, not 'a'"),  # type: ignore[arg-type]
])  # fmt: skip
def test_impossible_agent_is_rejected_with_a_correction(case: Case) -> None:
    rejected(case)


@pytest.mark.parametrize("function", [Instance(), partial(two, 1), lambda _context: 1, Waits(), print])
def test_any_named_callable_of_the_context_is_an_agent(function: Any) -> None:
    made = app()
    made.agent(name="a", activate_on=START)(function)
    assert made.workflow.agents["a"].run is function


def test_guard_argument_with_a_default_does_not_take_the_signal() -> None:
    """As in a loop: `lambda state, limit=limit: ...`; the signal must not take the place of the limit."""

    def guarded(_state: Any, _limit: int = 5) -> bool:
        return True

    assert define_agent("a", run=guarded, when=guarded, activate_on=START).when_arity == 1


@each_case([
    Case(prompting("x", foo=1), "unknown_field", "/agents/a/foo", "agent a has no option foo; there are run, prompt"),
    Case(prompting("x", emit=[]), "unknown_field", "/agents/a/emit", "did you mean emits?"),
    Case(prompting("x", tools=[delegate_to_b], agents=["b"]), "duplicate_entry", "/agents/a/tools", "the name delegate_to_b of a tool of"),
    Case(prompting("x", tools=[ask_human], asks_human=True), "duplicate_entry", "/agents/a/tools", "the name ask_human of a tool of"),
    Case(prompting(5), "wrong_type", "/agents/a/prompt", "prompt must be text or a function of the context, not 5"),
    Case(prompting(""), "required_field", "/agents/a/prompt", "prompt is empty"),
    Case(prompting(" \n"), "required_field", "/agents/a/prompt", "prompt is empty"),
    Case(prompting(waits), "wrong_type", "/agents/a/prompt", "returns without waiting"),
    Case(prompting(lambda: "x"), "wrong_type", "/agents/a/prompt", "takes only 0"),
    Case(prompting("Of {state.x"), "template_syntax", "/agents/a/prompt", "a { without a closing }, before 'state.x'"),
    Case(prompting("Of {topic}"), "template_undefined", "/agents/a/prompt", "the template uses {topic}, but there is only"),
    Case(prompting("x", model=5), "wrong_type", "/agents/a/model", "a name such as 'openai-chat:gpt-5'"),
    Case(prompting("x", model=""), "required_field", "/agents/a/model", "model is empty"),
    Case(prompting("x", model=ScriptedModel), "wrong_type", "/agents/a/model", "a pydantic-ai model, a Harness"),
    Case(prompting("x", system=5), "wrong_type", "/agents/a/system", "system must be a string, not 5"),
    Case(prompting("x", name=5), "invalid_identifier", "/agents", "not 5"),
])  # fmt: skip
def test_impossible_prompt_agent_is_rejected_with_a_correction(case: Case) -> None:
    rejected(case)


@pytest.mark.parametrize("model", [None, "openai-chat:gpt-5", ScriptedModel(["x"])])
def test_model_is_a_name_or_a_callable_harness(model: Any) -> None:
    assert app().prompt_agent("a", "x", activate_on=START, model=model).model is model


# ── The application ──


@each_case([
    Case(lambda: Heliograph(5), "invalid_identifier", "/name", "name must be 1 to 63 of a-z"),  # type: ignore[arg-type]
    Case(lambda: Heliograph(["a"]), "invalid_identifier", "/name", "not ['a']"),  # type: ignore[arg-type]
    Case(lambda: app(max_activations="7"), "wrong_type", "/max_activations", "a whole number, not '7'"),
    Case(lambda: app(max_activations=True), "wrong_type", "/max_activations", "a whole number, not True"),
    Case(lambda: app(max_activations=math.inf), "wrong_type", "/max_activations", "a whole number, not inf"),
    Case(lambda: app(max_activations=0), "out_of_range", "/max_activations", "between 1 and 1000000, not 0"),
    Case(lambda: app(reducers=[1]), "wrong_type", "/reducers", "a mapping of state keys to functions (old, new)"),
    Case(lambda: app(reducers={"k": 5}), "wrong_type", "/reducers/k", "the reducer for k must be a function of the old"),
    Case(lambda: app(reducers={"k": waits}), "wrong_type", "/reducers/k", "returns without waiting"),
    Case(lambda: app(reducers={"k": nothing}), "wrong_type", "/reducers/k", "takes only 1; add the missing parameters"),
    Case(lambda: app(reducers={"a b": max}), "invalid_state_key", "/reducers", "reducers: a key of the state must be"),
    Case(lambda: app(end_when=5), "wrong_type", "/end_when", "end_when must be a function of the state, not 5"),
    Case(lambda: app(end_when=waits), "wrong_type", "/end_when", "end_when must be a plain function"),
    Case(lambda: app(end_when=Waits()), "wrong_type", "/end_when", "end_when must be a plain function"),
    Case(lambda: app(end_when=two), "wrong_type", "/end_when", "needs 2 arguments"),
])  # fmt: skip
def test_impossible_application_is_rejected_at_its_definition(case: Case) -> None:
    rejected(case)


def test_builtin_is_a_valid_reducer() -> None:
    assert app(reducers={"k": max, "n": int.__add__, "d": dict.__or__}).name == "press"


# ── The state ──


class Deep(BaseModel):
    token: SecretStr | None = None


class HasSecret(BaseModel):
    parts: dict[str, list[Deep]] = {}


class HasBytes(BaseModel):
    key: SecretBytes = SecretBytes(b"")


class Excludes(BaseModel):
    seen: int = Field(default=0, exclude=True)


class DeepExcludes(BaseModel):
    part: Excludes = Excludes()


@dataclass
class DataExcludes:
    seen: Annotated[int, Field(exclude=True)] = 0


class Unicode(BaseModel):
    größe: int = 0  # noqa: PLC2401


class Unknown(BaseModel):
    parts: list["Nowhere"] = []  # type: ignore[name-defined]  # noqa: F821


class UnknownDict(typing.TypedDict):
    parts: "list[Nowhere]"  # type: ignore[name-defined]  # noqa: F821


class Post(BaseModel):
    topic: str = "none"


class Open(BaseModel, extra="allow"):
    topic: str = "none"


def built(state: Any, prompt: str = "x") -> Callable[[], Any]:
    def build() -> Any:
        made = app(state=state)
        made.prompt_agent("a", prompt, activate_on=START)
        return made.workflow

    return build


NO_TYPE = "must be a pydantic model, a dataclass or a TypedDict, not"


@each_case([
    *[Case(built(kind), "wrong_type", "/state", f"{NO_TYPE} {kind!r}") for kind in (
        int, list, dict, "x", 5, list[int], dict[str, int], Post(), RootModel[dict[str, int]], Post | None)],
    Case(built(Unknown), "wrong_type", "/state", "Unknown cannot be the type of a state: name 'Nowhere' is not defined"),
    Case(built(UnknownDict), "wrong_type", "/state", "UnknownDict cannot be the type of a state"),
    Case(built(HasSecret), "lossy_state", "/state/token", "a secret is written as asterisks, so it would be lost"),
    Case(built(HasBytes), "lossy_state", "/state/key", "read it where it is used"),
    Case(built(Excludes), "lossy_state", "/state/seen", "excluded when the state is written, so it would be lost"),
    Case(built(DeepExcludes), "lossy_state", "/state/seen", "remove exclude"),
    Case(built(DataExcludes), "lossy_state", "/state/seen", "remove exclude"),
    Case(built(Unicode), "invalid_state_key", "/state", "not 'größe'"),
    Case(built(Post, "Of {state.nix}"), "template_undefined", "/agents/a/prompt", "{state.nix}, but there is only"),
])  # fmt: skip
def test_state_type_without_a_round_trip_is_rejected_at_the_definition(case: Case) -> None:
    rejected(case)


@pytest.mark.parametrize("kind", [None, Open])
def test_template_may_name_any_key_of_an_untyped_state(kind: Any) -> None:
    built(kind, "Of {state.nix}")()


@pytest.mark.parametrize("key", ["", "a b", "a:b", "größe", "x" * 187])
@pytest.mark.parametrize("kind", [None, Open])
def test_state_key_without_a_signal_name_is_rejected_at_the_start(kind: Any, key: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        built(kind)().shape.dump({key: 1})
    assert caught.value.code == "invalid_state_key"


def test_state_key_may_have_every_character_of_a_name_segment() -> None:
    document = {"a.b-C_9": 1, "x" * 186: {"größe and all": 1}}
    assert built(None)().shape.dump(document) == document


class Wrapped(BaseModel):
    number: Secret[int] = Secret(1)


@pytest.mark.parametrize("kind", [None, Wrapped])
def test_secret_in_an_undeclared_field_is_rejected(kind: Any) -> None:
    with pytest.raises(InvalidInput, match="a secret cannot be stored"):
        built(kind)().shape.dump({"number": SecretStr("x")} if kind is None else {})


class Ranked(typing.TypedDict):
    rank: Annotated[int, Field(ge=1)]
    note: typing.NotRequired[str]


class Strict(typing.TypedDict):
    __pydantic_config__ = {"extra": "allow"}  # type: ignore[misc]  # noqa: RUF012
    rank: int


def test_typed_dict_of_the_standard_library_keeps_its_constraints_and_configuration() -> None:
    shape = built(Ranked)().shape
    assert shape.dump({"rank": 1}) == {"rank": 1}
    with pytest.raises(InvalidInput, match="greater than or equal to 1"):
        shape.dump({"rank": 0})
    assert built(Strict)().shape.dump({"rank": 1, "more": 2}) == {"rank": 1, "more": 2}


class Tree(typing.TypedDict):
    parts: "list[Tree]"


class ExtendedTree(typing_extensions.TypedDict):
    parts: "list[ExtendedTree]"


def test_state_may_be_recursive_where_pydantic_supports_it() -> None:
    kinds = [ExtendedTree, Tree] if sys.version_info >= (3, 12) else [ExtendedTree]
    for kind in kinds:
        assert built(kind)().shape.dump({"parts": [{"parts": []}]}) == {"parts": [{"parts": []}]}


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes it from Python 3.12 on")
def test_recursive_state_beyond_pydantic_is_rejected_with_an_alternative() -> None:
    rejected(Case(built(Tree), "wrong_type", "/state", "it contains itself; use TypedDict from"))


# ── Results of guards, texts of templates ───


def test_unawaited_coroutine_is_no_output() -> None:
    assert decided(1) is True
    assert decided([]) is False
    with pytest.raises(TypeError, match="returned an awaitable"):
        decided(waits(None))


def test_values_of_a_template_are_never_templates() -> None:
    assert substitute("{ state.a } {{x}} }", {"state.a": "{state.b}"}) == "{state.b} {x} }"
    assert placeholders("{ state.a } {{x}} {signal.name}") == ["state.a", "signal.name"]
    with pytest.raises(InvalidInput, match="there is only state"):
        substitute("{state.b}", {"state.a": 1})

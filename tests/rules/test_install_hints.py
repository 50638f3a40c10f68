"""Errors name Heliograph's own extras, which pin the versions that it is tested with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.errors import SetupError
from heliograph.harness import pydantic_model as harness

_UPSTREAM = (
    "Please install the `{0}` package to use the provider, you can use the `{0}` optional group — `pip install "
    '"pydantic-ai-slim[{0}]"`'
)


def _project() -> dict[str, Any]:
    file = Path(__file__).resolve().parents[2] / "pyproject.toml"
    project: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    return project


@pytest.mark.parametrize(
    ("model", "package", "hint"),
    [
        ("openai-chat:gpt-5", "openai", "pip install 'heliograph[openai]'"),
        ("anthropic:claude", "anthropic", "pip install 'heliograph[anthropic]'"),
        ("google-gla:gemini", "google-genai", "pip install 'heliograph[google]'"),
        ("groq:llama", "groq", "pip install 'heliograph[groq]'"),
        ("azure:gpt-5", "openai", "pip install 'heliograph[openai]'"),
        ("bedrock:nova", "boto3", "pip install 'heliograph[bedrock]'"),
        (
            "xai:grok",
            "xai-sdk",
            "no extra of Heliograph contains this provider's library: install the library beside 'heliograph[models]'",
        ),
    ],
)
def test_hint_for_a_missing_provider_names_our_own_extra(
    monkeypatch: pytest.MonkeyPatch, model: str, package: str, hint: str
) -> None:
    def lacking(_: str) -> None:
        raise ImportError(_UPSTREAM.format(package))

    monkeypatch.setattr(harness, "infer_model", lacking)
    with pytest.raises(SetupError) as missing:
        harness.PydanticHarness(model)
    assert (missing.value.code, missing.value.hint) == ("no_model_library", hint)
    assert "pydantic-ai-slim" not in f"{missing.value.message} {missing.value.hint}"


def test_every_message_that_says_pip_install_names_an_extra_of_heliograph() -> None:
    extras = set(_project()["optional-dependencies"])
    sources = [path.read_text(encoding="utf-8") for path in Path(heliograph.__file__).parent.rglob("*.py")]
    named = [found for text in sources for found in re.findall(r"pip install (?:--force-reinstall )?'?([^' ]+)", text)]
    assert {name.partition("[")[0] for name in named} == {"heliograph"}
    assert {each for name in named for each in name.partition("[")[2].rstrip("]").split(",")} - {"{extra}"} <= extras


def test_every_extra_is_listed_in_the_guide_to_installing() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([\w-]+)` \|", guide, re.M))
    assert listed == set(_project()["optional-dependencies"])

"""Forms of tools, servers and limits in real manifests of agents, and suggestions for misspelt keys."""

from __future__ import annotations

import pytest

from tests.rules.agent_manifest_kit import HEAD_5, agent, warned


def test_server_may_describe_its_transport_in_an_object() -> None:
    (made,) = agent("""
        extensions:
          mcp:
            servers:
              - name: postgres
                transport: {type: stdio, command: npx, args: [-y, 5432, true]}
                env: {URL: "${URL}", PORT: 5432}
        """, head=HEAD_5).servers  # fmt: skip
    assert (made.name, made.command) == ("postgres", ("npx", "-y", "5432", "true"))
    assert made.env == {"URL": "${URL}", "PORT": "5432"}


def test_tools_of_v0_5_may_be_a_list_of_those_that_the_agent_may_use() -> None:
    made = agent("role: R\ntools: {allow: [read, task], deny: [write], mode: strict}", HEAD_5)
    assert [each.name for each in made.tools] == ["read", "task"]
    assert warned(made) == ["/spec/tools/mode"]


@pytest.mark.parametrize("strategy", ["none", "exponential"])
def test_retry_without_a_delay_has_the_shortest_one(strategy: str) -> None:
    made = agent(f"""
        role: R
        llm: {{provider: openai, model: m, retry_config: {{initial_delay_ms: 0, backoff_strategy: {strategy}}}}}
        """)
    assert made.options["retry"].initial_delay_seconds == 0.001


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("rol: R", "role"), ("role: R\nlifecycle: {max_turn: 5}", "max_turns"), ("role: R\ntool: [a]", "tools"),
        ("role: R\nllm: {provider: openai, model: m, temprature: 1}", "temperature"), ("role: R\nfoo: 1", None),
    ],
)  # fmt: skip
def test_misspelt_key_gets_the_nearest_one(spec: str, meant: str | None) -> None:
    found = next(each for each in agent(spec, HEAD_5).warnings if each.code == "no_effect")
    assert found.hint == (f"did you mean {meant}?" if meant else "remove it, or ignore this warning")

from pathlib import Path

import pytest

from heliograph.config import Settings, read_settings
from heliograph.errors import InvalidInput


def test_defaults_are_the_embedded_server_and_the_default_project() -> None:
    settings = read_settings({})
    assert settings == Settings(None, Path(".heliograph"), "default", None, 18, None)


def test_empty_variable_counts_as_unset() -> None:
    names = (
        "DATABASE_URL",
        "HOME",
        "PROJECT",
        "MODEL",
        "POSTGRES_VERSION",
        "NATS_URL",
        "PRUNE_AFTER",
        "WEBHOOK_SECRETS",
        "EGRESS_ALLOW",
        "MCP_ALLOW",
        "GATEWAY_SECRETS",
        "LISTEN",
        "LISTEN_KEYS",
    )
    assert read_settings({f"HELIOGRAPH_{name}": "" for name in names}) == read_settings({})


def test_every_variable_reaches_its_setting() -> None:
    settings = read_settings({
        "HELIOGRAPH_DATABASE_URL": "postgres://u@h/d", "HELIOGRAPH_HOME": "/data", "HELIOGRAPH_PROJECT": "p",
        "HELIOGRAPH_MODEL": "test", "HELIOGRAPH_POSTGRES_VERSION": "16", "HELIOGRAPH_NATS_URL": "nats://h",
        "HELIOGRAPH_PRUNE_AFTER": "12h", "HELIOGRAPH_WEBHOOK_SECRETS": " whsec_a, whsec_b ",
        "HELIOGRAPH_EGRESS_ALLOW": "http://127.0.0.1:9000", "HELIOGRAPH_MCP_ALLOW": "https://tools.internal",
        "HELIOGRAPH_GATEWAY_SECRETS": "whsec_c", "HELIOGRAPH_LISTEN": "[::1]:9464", "HELIOGRAPH_LISTEN_KEYS": "a b",
        "HOME": "/elsewhere",
    })  # fmt: skip
    assert settings == Settings("postgres://u@h/d", Path("/data"), "p", "test", 16, "nats://h", 43_200.0, ("whsec_a", "whsec_b"),
                                "http://127.0.0.1:9000", "https://tools.internal", ("whsec_c",), "[::1]:9464", ("a", "b"))  # fmt: skip
    assert "whsec" not in repr(settings)


@pytest.mark.parametrize("age", ["30", "0d", "-1d", "1 d", "1w", "ever", "9" * 9 + "d", "9" * 10 + "s", "59m"])
def test_invalid_age_is_rejected_before_any_pruning(age: str) -> None:
    with pytest.raises(InvalidInput, match="HELIOGRAPH_PRUNE_AFTER must be an age such as 30d") as caught:
        read_settings({"HELIOGRAPH_PRUNE_AFTER": age})
    assert caught.value.code == "out_of_range"


@pytest.mark.parametrize("version", ["17", "018", " 18", "eighteen", "18.4"])
def test_another_version_of_postgresql_is_rejected_by_name(version: str) -> None:
    with pytest.raises(InvalidInput, match="HELIOGRAPH_POSTGRES_VERSION must be 18 or 16") as caught:
        read_settings({"HELIOGRAPH_POSTGRES_VERSION": version})
    assert caught.value.code == "out_of_range"


@pytest.mark.proves("S13")
def test_url_of_another_kind_is_rejected_and_its_password_is_not_repeated() -> None:
    with pytest.raises(InvalidInput, match="must begin with postgresql://") as caught:
        read_settings({"HELIOGRAPH_DATABASE_URL": "mysql://u:hunter2@h/d"})
    assert caught.value.code == "invalid_url"
    assert "hunter2" not in caught.value.message

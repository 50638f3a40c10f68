from pathlib import Path

import pytest

from heliograph.config import Settings, read_settings
from heliograph.errors import InvalidInput


def test_nothing_set_means_the_embedded_server_and_the_default_project() -> None:
    settings = read_settings({})
    assert settings == Settings(None, Path(".heliograph"), "default", None, 18, None)


def test_an_empty_variable_is_a_variable_that_is_not_set() -> None:
    names = ("DATABASE_URL", "HOME", "PROJECT", "MODEL", "POSTGRES_VERSION", "NATS_URL")
    assert read_settings({f"HELIOGRAPH_{name}": "" for name in names}) == read_settings({})


def test_every_variable_reaches_its_setting() -> None:
    settings = read_settings({
        "HELIOGRAPH_DATABASE_URL": "postgres://u@h/d", "HELIOGRAPH_HOME": "/data", "HELIOGRAPH_PROJECT": "p",
        "HELIOGRAPH_MODEL": "test", "HELIOGRAPH_POSTGRES_VERSION": "16", "HELIOGRAPH_NATS_URL": "nats://h",
        "HOME": "/elsewhere",
    })  # fmt: skip
    assert settings == Settings("postgres://u@h/d", Path("/data"), "p", "test", 16, "nats://h")


@pytest.mark.parametrize("version", ["17", "018", " 18", "eighteen", "18.4"])
def test_another_version_of_postgresql_is_refused_by_name(version: str) -> None:
    with pytest.raises(InvalidInput, match="HELIOGRAPH_POSTGRES_VERSION is 18 or 16") as caught:
        read_settings({"HELIOGRAPH_POSTGRES_VERSION": version})
    assert caught.value.code == "out_of_range"


@pytest.mark.proves("S13")
def test_a_url_of_another_kind_is_refused_and_its_password_is_not_repeated() -> None:
    with pytest.raises(InvalidInput, match="begins with postgresql://") as caught:
        read_settings({"HELIOGRAPH_DATABASE_URL": "mysql://u:hunter2@h/d"})
    assert caught.value.code == "invalid_url"
    assert "hunter2" not in caught.value.message

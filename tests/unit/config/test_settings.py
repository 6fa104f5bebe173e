from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config.policies import Leading
from holdfast.config.settings import SettingOrigin, Settings
from holdfast.errors import Invalid, NotFound


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_default_lies_below_the_working_directory(tmp_path: Path) -> None:
    settings = Settings.resolve({}, {}, tmp_path)
    assert settings.home == tmp_path / ".holdfast"
    assert settings.sources["home"] == SettingOrigin("default", ".holdfast")
    assert settings.leading is None


def test_each_place_wins_over_the_next(tmp_path: Path) -> None:
    file = write(tmp_path / "holdfast.toml", '[holdfast]\nhome = "from-file"\n')
    of_the_file = Settings.resolve({"home": None}, {"HOLDFAST_HOME": ""}, tmp_path)
    assert of_the_file.home == tmp_path / "from-file"
    assert of_the_file.sources["home"] == SettingOrigin("file", str(file))
    environ = {"HOLDFAST_HOME": "from-environment"}
    of_the_environment = Settings.resolve({}, environ, tmp_path)
    assert of_the_environment.home == tmp_path / "from-environment"
    assert str(of_the_environment.sources["home"]) == "environment HOLDFAST_HOME"
    of_the_flag = Settings.resolve({"home": tmp_path / "flag"}, environ, tmp_path)
    assert of_the_flag.home == tmp_path / "flag"
    assert str(of_the_flag.sources["home"]) == "flag --home"


def test_leaders_are_elected_where_it_is_said_first(tmp_path: Path) -> None:
    write(tmp_path / "holdfast.toml", '[holdfast]\nha = "leases"\nlease = "30s"\n')
    of_the_file = Settings.resolve({}, {}, tmp_path)
    assert of_the_file.leading == Leading((tmp_path / "leases").as_uri(), 30_000)
    environ = {"HOLDFAST_HA": "zookeeper://a:2181,b:2181/holdfast"}
    assert Settings.resolve({}, environ, tmp_path).leading == Leading(environ["HOLDFAST_HA"], 30_000)
    of_the_flag = Settings.resolve({"ha": "home", "lease": "2s"}, environ, tmp_path)
    assert of_the_flag.leading == Leading((tmp_path / ".holdfast" / "leases").as_uri(), 2000)
    assert Settings.resolve({"ha": "none"}, environ, tmp_path).leading is None


@pytest.mark.parametrize(
    ("flags", "fact"),
    [
        ({"ha": "home", "lease": "10ms"}, "the duration of the lease is too short"),
        ({"ha": "home", "lease": "soon"}, "duration"),
        ({"ha": "ftp://host/leases"}, "ha"),
        ({"ha": 3}, "invalid value for ha"),
    ],
)
def test_a_place_for_elections_that_cannot_be_right_is_refused(
    tmp_path: Path, flags: dict[str, object], fact: str
) -> None:
    with pytest.raises(Invalid, match=fact):
        Settings.resolve(flags, {}, tmp_path)


def test_the_port_says_where_it_came_from(tmp_path: Path) -> None:
    file = write(tmp_path / "holdfast.toml", "[holdfast]\nport = 9000\n")

    def found(flag: int | None, environ: dict[str, str]) -> tuple[int, str]:
        settings = Settings.resolve({"port": flag}, environ, tmp_path)
        (shown,) = (setting for setting in settings.resolved() if setting.name == "port")
        assert shown.value == str(settings.port)
        return settings.port, shown.source

    assert found(None, {}) == (9000, f"file {file}")
    assert found(None, {"HOLDFAST_PORT": "9001"}) == (9001, "environment HOLDFAST_PORT")
    assert found(0, {"HOLDFAST_PORT": "9001"}) == (0, "flag --port")
    file.unlink()
    assert found(None, {}) == (8081, "default")


@pytest.mark.parametrize("port", [65536, -1, "http", True, 80.5])
def test_what_is_no_port_is_refused_with_its_place(tmp_path: Path, port: object) -> None:
    with pytest.raises(Invalid, match="invalid value for port") as caught:
        Settings.resolve({"port": port}, {}, tmp_path)
    assert (caught.value.where, caught.value.found) == ("flag --port", repr(port))


def test_a_path_in_a_named_file_is_taken_from_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "etc" / "my.toml", '[holdfast]\nhome = "../state"\n')
    settings = Settings.resolve({}, {"HOLDFAST_CONFIG": "etc/my.toml"}, tmp_path)
    assert settings.home == tmp_path / "state"
    assert settings.sources["home"] == SettingOrigin("file", str(file))


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        Settings.resolve({}, {"HOLDFAST_CONFIG": "gone.toml"}, tmp_path)
    assert caught.value.where == "HOLDFAST_CONFIG=gone.toml"
    assert str(tmp_path / "gone.toml") in (caught.value.found or "")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[holdfast]\nhouse = "x"\n', "house"),
        ('home = "x"\n', "home"),
        ('[spark]\nmaster = "x"\n', "spark"),
        ("holdfast = 3\n", "3"),
        ("[holdfast\n", "line 1"),
        ("[holdfast]\nhome = 3\n", "3"),
        ('[holdfast]\nhome = ""\n', "''"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(tmp_path: Path, text: str, found: str) -> None:
    file = write(tmp_path / "holdfast.toml", text)
    with pytest.raises(Invalid) as caught:
        Settings.resolve({}, {}, tmp_path)
    assert str(file) in (caught.value.where or "")
    assert found in (caught.value.found or "")


def test_an_unknown_setting_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    write(tmp_path / "holdfast.toml", "[holdfast]\nhouse = 1\n")
    with pytest.raises(Invalid) as caught:
        Settings.resolve({}, {}, tmp_path)
    assert caught.value.expected == "home, ha, lease, port"
    assert caught.value.hint == "did you mean home?"
    with pytest.raises(Invalid, match="unknown setting"):
        Settings.resolve({"house": "x"}, {}, tmp_path / "elsewhere")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "holdfast.toml", "")
    assert Settings.resolve({}, {}, tmp_path).sources["home"].kind == "default"


def test_the_home_is_created_and_left_clean(tmp_path: Path) -> None:
    settings = Settings.resolve({"home": "a/b"}, {}, tmp_path)
    assert settings.ensure_home() == tmp_path / "a" / "b"
    assert settings.ensure_home().is_dir()
    assert list(settings.home.iterdir()) == []


@pytest.mark.parametrize("home", ["file", "file/below"])
def test_a_home_that_cannot_be_written_names_the_way_out(tmp_path: Path, home: str) -> None:
    write(tmp_path / "file", "in the way")
    with pytest.raises(Invalid) as caught:
        Settings.resolve({}, {"HOLDFAST_HOME": home}, tmp_path).ensure_home()
    assert caught.value.where == f"{tmp_path / home} (from environment HOLDFAST_HOME)"
    assert "HOLDFAST_HOME" in (caught.value.hint or "")

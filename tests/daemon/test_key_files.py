"""Keys of the engine: from a file that only we may read, or a systemd credential, and on no command line."""

from pathlib import Path

import pytest
from daemon_rig import Rig, write_profile

from tokenflow import locations
from tokenflow.errors import ConfigurationError, UsageError
from tokenflowd import key_files, plan
from tokenflowd.profiles import store
from tokenflowd.profiles.schema import EngineSection, Profile


def engine(**fields) -> EngineSection:
    return EngineSection(device="cpu", **fields)


def key_file(folder: Path, mode: int = 0o600, text: str = "secret\n") -> str:
    path = folder / "engine.key"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_private_file_is_taken_and_only_its_path_goes_on(tmp_path):
    section = engine(api_key_file=key_file(tmp_path))
    key_files.check(section)
    assert key_files.variables(section, {}) == {"TOKENFLOW_API_KEY_FILE": str(tmp_path / "engine.key")}


def test_a_systemd_credential(tmp_path):
    (tmp_path / "engine-key").write_text("secret")
    (tmp_path / "engine-key").chmod(0o400)
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    section = engine(admin_key_file="credential:engine-key")
    key_files.check(section, environment)
    assert key_files.variables(section, environment) == {"TOKENFLOW_ADMIN_KEY_FILE": str(tmp_path / "engine-key")}
    with pytest.raises(ConfigurationError, match="no systemd credentials") as caught:
        key_files.check(section, {})
    assert "LoadCredential=engine-key:" in caught.value.hint


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_that_others_may_read_is_refused(mode, tmp_path):
    path = key_file(tmp_path, mode)
    with pytest.raises(ConfigurationError, match=f"mode {mode:04o}") as caught:
        key_files.check(engine(api_key_file=path))
    assert caught.value.hint == f"chmod 600 {path}"


def test_no_file_an_empty_one_and_a_folder(tmp_path):
    for path in (str(tmp_path / "none"), key_file(tmp_path, text=" \n"), str(tmp_path)):
        with pytest.raises(ConfigurationError):
            key_files.check(engine(api_key_file=path))


@pytest.mark.parametrize("value", ["relative.key", "credential:", "credential:../x", "secret"])
def test_what_is_no_place_for_a_key(value):
    with pytest.raises(ValueError, match="absolute path"):
        engine(api_key_file=value)


@pytest.mark.parametrize("words", [["--api-key", "x"], ["--api-key=x"], ["--admin-api-key", "x"]])
def test_a_key_on_a_command_line_is_refused(words):
    model = {"path": "demo", "served_name": "x"}
    profile = Profile.model_validate({"name": "x", "model": model, "engine": {"device": "cpu"}})
    with pytest.raises(UsageError, match="command line") as caught:
        plan.make(profile, words)
    assert "key_file" in caught.value.hint
    profile.engine.args = words
    with pytest.raises(ConfigurationError, match="command line"):
        plan.make(profile, [])


async def test_a_start_with_an_open_key_file_fails_at_once_and_says_how_to_close_it(rig: Rig, tmp_path):
    path = key_file(tmp_path, 0o644)
    profile = write_profile("keyed", "serve")
    profile.write_text(profile.read_text().replace("port = 0", f'port = 0\napi_key_file = "{path}"'))
    document = await rig.client.start("keyed")
    assert (document["state"], document["error"]["hint"]) == ("failed", f"chmod 600 {path}")
    Path(path).chmod(0o600)
    assert (await rig.client.start("keyed"))["state"] == "done"


def test_engines_listen_on_loopback_unless_their_profile_says_otherwise(home):
    assert engine().host == "127.0.0.1"
    (folder,) = (folder for origin, folder in locations.profile_folders() if origin == "built-in")
    assert {store.load(path.stem).engine.host for path in folder.glob("*.toml")} == {"127.0.0.1"}

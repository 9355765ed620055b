"""Which keys the engine gets, and that none of them is told again."""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from tokenflow.link import LINK_ENV
from tokenflow.sglang import keys
from tokenflow.sglang.keys import ADMIN_KEY_FILE_ENV, API_KEY_FILE_ENV, KeyProblem, find

OURS = {LINK_ENV: "/run/link"}


def written(folder, text: str) -> str:
    path = folder / "key"
    path.write_text(text)
    return str(path)


def test_an_engine_of_ours_has_an_admin_key_that_nobody_knows():
    first, second = find([], OURS), find([], OURS)
    assert list(first) == ["--admin-api-key"]
    assert len(first["--admin-api-key"]) >= 40
    assert first != second
    assert find([], {}) == {}, "stock SGLang stays as it is"


def test_keys_come_from_files(tmp_path):
    environment = {**OURS, API_KEY_FILE_ENV: written(tmp_path, "secret\n")}
    assert find([], environment)["--api-key"] == "secret"
    assert find([], {**OURS, ADMIN_KEY_FILE_ENV: environment[API_KEY_FILE_ENV]}) == {"--admin-api-key": "secret"}


@pytest.mark.parametrize("given", [["--admin-api-key", "x"], ["--admin-api-key=x"]])
def test_an_admin_key_of_the_arguments_is_left_alone(given):
    assert find(given, OURS) == {}


@pytest.mark.parametrize(
    "arguments",
    [["--tokenizer-worker-num", "4"], ["--tokenizer-worker-num=4"], ["--grpc-port", "1"], ["--tokenizer-worker-num"]],
)
def test_where_sglang_checks_no_keys_one_that_was_asked_for_is_refused(arguments, tmp_path):
    assert find(arguments, OURS) == {}
    with pytest.raises(KeyProblem, match=arguments[0].partition("=")[0]):
        find(arguments, {**OURS, API_KEY_FILE_ENV: written(tmp_path, "secret")})
    assert find(["--tokenizer-worker-num", "1"], OURS)


@pytest.mark.parametrize("text", ["", "  \n", "two words", "\xff"])
def test_a_file_without_one_key_is_refused(text, tmp_path):
    path = tmp_path / "key"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(KeyProblem):
        find([], {API_KEY_FILE_ENV: str(path)})


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(KeyProblem, match="cannot be read"):
        find([], {API_KEY_FILE_ENV: str(tmp_path / "none")})


def stand_in(monkeypatch, core) -> None:
    for name in ("sglang", "sglang.srt", "sglang.srt.sampling", "sglang.srt.sampling.watermarking"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["sglang.srt.sampling.watermarking"].core = core


def test_an_sglang_that_hides_otherwise_gets_no_keys(monkeypatch):
    stand_in(monkeypatch, SimpleNamespace(WATERMARK_SECRET_FIELD_NAMES=frozenset(), redact_watermark_secrets=dict))
    with pytest.raises(KeyProblem, match="kept from telling"):
        keys.hide()
    stand_in(monkeypatch, SimpleNamespace())
    with pytest.raises(KeyProblem, match="kept from telling"):
        keys.hide()


def test_the_command_that_sglang_remembers_has_no_key():
    server_args = SimpleNamespace(launch_command="--port 1 --api-key secret", _launch_command=None)
    keys.forget_command(server_args, {"--api-key": "secret"})
    assert server_args._launch_command == "--port 1 --api-key <redacted>"


def test_the_environment_of_the_tests_has_no_keys():
    assert API_KEY_FILE_ENV not in os.environ

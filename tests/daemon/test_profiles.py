"""Profile files: found, read, and refused with every fault at its line."""

from pathlib import Path

import msgspec
import pytest

from tokenflow import locations
from tokenflow.errors import ConfigurationError, ProfileNotFoundError, UsageError
from tokenflow.policy.costs import Costs
from tokenflow.policy.states import Mode
from tokenflow.sglang.settings import PluginSettings
from tokenflowd import plan
from tokenflowd.profiles import store
from tokenflowd.profiles.check import report
from tokenflowd.profiles.tunables import TunableOverrides

GOOD = """
name = "mine"
[model]
path = "/models/mine"
served_name = "mine"
[engine]
device = "cuda"
args = ["--tp", "2", "--log-level", "info"]
env = { SGLANG_X = "1" }
[tunables]
mode = "off"
safety_factor = 2
[classes.reading]
rate_tok_s = 6.0
max_rate_tok_s = 60
[classes.batch]
"""


def write(name: str, text: str) -> Path:
    path = locations.user_config_folder() / "profiles" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def faults_of(name: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        store.load(name)
    assert caught.value.hint
    return caught.value.message.splitlines()


def test_an_unknown_name_leads_to_the_list(home: Path):
    with pytest.raises(ProfileNotFoundError, match=r"there are: .*demo-cpu") as caught:
        store.load("nosuch")
    assert caught.value.hint == "see them: tfctl profile list"


def test_the_check_names_the_invalid_ones_alone(home: Path):
    path = write("odd", "nonsense = 1\n")
    (found,) = [entry for entry in report([]) if entry["faults"]]
    assert (found["path"], found["profile"]) == (str(path), None)
    assert {"line": 1, "key": "nonsense", "message": "unknown key"} in found["faults"]


def test_the_check_fills_in_defaults_and_takes_paths(home: Path, tmp_path: Path):
    path = write("mine", GOOD)
    by_name, by_path, missing = report(["mine", str(path), str(tmp_path / "nosuch.toml")])
    assert by_name == by_path
    assert by_name["profile"]["engine"]["port"] == 30000
    assert "no such file" in missing["faults"][0]["message"]


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("a = 1\n= 2\n", 2, ""),
        (GOOD.replace('"--tp", "2"', '"--port", "x"'), 8, "engine.args"),
        (GOOD.replace('name = "mine"', 'name = "other"', 1), 2, "name"),
    ],
)
def test_the_check_finds_what_is_no_matter_of_the_schema(home: Path, text: str, line: int, key: str):
    write("mine", text)
    (found,) = report(["mine"])
    assert [(fault["line"], fault["key"]) for fault in found["faults"]] == [(line, key)]


BUILT_IN = sorted((Path(__file__).parents[2] / "profiles").glob("*.toml"))


@pytest.mark.parametrize("path", BUILT_IN, ids=lambda path: path.stem)
def test_every_built_in_profile_is_valid(home: Path, path: Path):
    profile = store.load(path.stem)
    plan.plugin_settings(profile, TunableOverrides())
    performance = profile.performance
    if profile.engine.device == "cpu":
        return
    assert performance is not None
    sections = (performance.decode, performance.prefill, performance.d2h, performance.h2d, performance.kv)
    for section in (*sections, performance.capacity):
        assert section is not None
        assert section.how in ("derived", "assumed")  # nobody has measured them on the machine that will run them
        assert len(section.source) > 20
    options = profile.engine.args
    assert float(options[options.index("--hicache-ratio") + 1]) >= 1
    assert int(options[options.index("--context-length") + 1]) <= performance.kv.pool_tokens


def test_the_built_in_profiles_are_those_that_were_asked_for():
    names = {path.stem for path in BUILT_IN}
    gpus = {"h200", "h100", "a100", "l40s", "a6000", "rtx4090"}
    assert {name.partition("-")[0] for name in names} == gpus | {"demo"}
    assert {name for name in names if name.endswith("32b")} == {
        f"{gpu}-qwen2.5-32b" for gpu in ("h200", "h100", "a100")
    }
    for gpu in gpus:
        assert {f"{gpu}-llama3-8b", f"{gpu}-qwen2.5-7b"} <= names


@pytest.mark.parametrize("path", [path for path in BUILT_IN if path.stem != "demo-cpu"], ids=lambda path: path.stem)
def test_the_capacity_of_a_built_in_profile_is_what_its_steps_say(home: Path, path: Path):
    performance = store.load(path.stem).performance
    assert performance is not None
    step = performance.decode
    for point in performance.capacity.points:
        kv_tokens = point.streams * point.context_tokens
        tok_s = point.streams / (step.fixed_s + step.row_s * point.streams + step.token_s * kv_tokens)
        assert tok_s == pytest.approx(point.tok_s, rel=0.1)


def test_what_a_profile_measured_reaches_the_policy(home: Path):
    measured = """
[performance.decode]
how = "measured"
source = "tfctl profile measure"
fixed_s = 0.01
row_s = 0.002
token_s = 3e-6
[performance.prefill]
how = "measured"
source = "tfctl profile measure"
fixed_s = 0.02
token_s = 0.0004
[performance.h2d]
how = "assumed"
source = "a guess"
bytes_s = 2e9
both_bytes_s = 1e9
[performance.tails]
how = "measured"
source = "tfctl profile measure"
schedule_s = 0.3
evict_s = 0.07
[[performance.capacity.points]]
streams = 8
context_tokens = 100
tok_s = 70
"""
    write("mine", GOOD + measured)
    assert "performance.capacity.how: is missing" in "\n".join(faults_of("mine"))
    write("mine", GOOD + measured.replace("[[perf", '[performance.capacity]\nhow = "measured"\nsource = "x"\n[[perf'))
    text = plan.environment(
        store.load("mine"), plan.plugin_settings(store.load("mine"), TunableOverrides()), Path("/l")
    )
    priors = msgspec.json.decode(text[plan.SETTINGS_ENV], type=PluginSettings).priors
    costs = priors.costs()
    assert (costs.prefill_fixed_s, costs.prefill_s_per_token, costs.schedule_s, costs.evict_tail_s) == (
        *(0.02, 0.0004, 0.3, 0.07),
    )
    assert (costs.h2d_bytes_s, costs.d2h_bytes_s) == (1e9, Costs().d2h_bytes_s)
    fit = priors.decode_fit()
    assert fit.step_s(8, 800) == pytest.approx(0.01 + 0.016 + 0.0024)


def test_a_fault_in_an_array_of_tables_is_found(home: Path):
    points = "[[performance.capacity.points]]\nstreams = 8\ncontext_tokens = 9\ntok_s = 7\n"
    bad = points.replace("tok_s = 7", "tok_s = -1")
    path = write("mine", GOOD + '[performance.capacity]\nhow = "measured"\nsource = "x"\n' + points + bad)
    (line,) = faults_of("mine")
    assert line.startswith(f"{path}:{len(path.read_text().splitlines())}: performance.capacity.points.1.tok_s:")


def test_a_users_profile_hides_a_built_in_one(home: Path):
    write("demo-cpu", GOOD.replace('"mine"', '"demo-cpu"'))
    assert store.find_all()["demo-cpu"].origin == "user"
    assert store.load("demo-cpu").model.path == "/models/mine"


def test_an_unknown_profile_names_those_that_exist(home: Path):
    with pytest.raises(ProfileNotFoundError) as caught:
        store.load("none")
    assert "demo-cpu" in caught.value.message


@pytest.mark.parametrize("name", ["", "../demo-cpu", "a/b", ".hidden", "x" * 80])
def test_a_name_is_no_path(home: Path, name: str):
    with pytest.raises(ProfileNotFoundError):
        store.load(name)


def test_every_fault_is_told_with_its_line(home: Path):
    path = write(
        "broken",
        'name = "broken"\nflavour = 1\n[model]\npath = "relative"\n[engine]\ndevice = "tpu"\nport = 70000\n'
        "[tunables]\nsafety_factor = nan\n[classes.reading]\nrate_tok_s = 0\n",
    )
    numbers = [int(line.partition(": ")[0].rpartition(":")[2]) for line in faults_of("broken")]
    assert numbers == sorted(numbers)
    places = {line.partition(": ")[0]: line.partition(": ")[2] for line in faults_of("broken")}
    assert places == {
        f"{path}:4": 'model.path: must be "demo" (the built-in demo model) or an absolute folder',
        f"{path}:3": "model.served_name: is missing",
        f"{path}:6": "engine.device: input should be 'cpu' or 'cuda' (it is 'tpu')",
        f"{path}:7": "engine.port: input should be less than or equal to 65535 (it is 70000)",
        f"{path}:9": "tunables.safety_factor: input should be less than or equal to 20 (it is nan)",
        f"{path}:11": "classes.reading.rate_tok_s: input should be greater than or equal to 0.1 (it is 0)",
        f"{path}:2": "flavour: unknown key",
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("name = ", "is not valid TOML: Invalid value (at end of document)"),
        (GOOD.replace('name = "mine"', 'name = "other"', 1), "but the file is called mine.toml"),
        (GOOD.replace("max_rate_tok_s = 60", "max_rate_tok_s = 1"), "rate_tok_s (6) is above max_rate_tok_s (1)"),
        (GOOD.replace("safety_factor = 2", "overload_exit_ratio = 1.2"), "must be below overload_enter_ratio (1)"),
        (GOOD.replace("[classes.batch]", "[classes.'b h']"), "classes.b h"),
    ],
)
def test_other_faults(home: Path, text: str, fault: str):
    write("mine", text)
    assert any(fault in line for line in faults_of("mine"))


def test_a_file_that_is_no_text(home: Path):
    write("mine", "").write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in faults_of("mine")[0]


def test_the_command_line_of_the_engine(home: Path):
    write("mine", GOOD)
    made = plan.make(store.load("mine"), ["--log-level", "debug", "--port=31000", "--served-model-name", "theirs"])
    assert made.command(["engine"]) == [
        "engine",
        *("--model-path", "/models/mine", "--host", "127.0.0.1", "--device", "cuda", "--tp", "2"),
        *("--log-level", "debug", "--port=31000", "--served-model-name", "theirs"),
    ]
    assert (made.url, made.served_name, made.device) == ("http://127.0.0.1:31000", "theirs", "cuda")
    assert made.command([])[1:3] == ["-m", "tokenflow.sglang.launch"]


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:1"), ("::", "http://[::1]:1"), ("::1", "http://[::1]:1"), ("gpu7", "http://gpu7:1")],
)
def test_the_url_is_one_that_can_be_called(home: Path, host: str, url: str):
    write("mine", GOOD)
    assert plan.make(store.load("mine"), ["--host", host, "--port", "1"]).url == url


@pytest.mark.parametrize("port", ["-1", "70000", "x", "", "²"])
def test_a_port_that_is_none(home: Path, port: str):
    write("mine", GOOD)
    with pytest.raises(UsageError):
        plan.make(store.load("mine"), [f"--port={port}"])


def test_the_plugin_understands_what_it_is_told(home: Path):
    write("mine", GOOD)
    profile = store.load("mine")
    told = plan.environment(profile, plan.plugin_settings(profile, TunableOverrides(mode=Mode.OBSERVE)), Path("/l"), {})
    assert next(iter(told.items())) == ("TOKENFLOW_LINK", "/l")
    assert told["TMPDIR"] == "/l/tmp"
    assert told["SGLANG_X"] == "1"
    settings = msgspec.json.decode(told[plan.SETTINGS_ENV], type=PluginSettings)
    assert settings.mode is Mode.OBSERVE  # the host's word is above the profile's
    assert (settings.classes["reading"].rate_tok_s, settings.classes["reading"].max_rate_tok_s) == (6.0, 60.0)
    assert settings.classes["batch"].rate_tok_s is None
    assert (settings.slow_client, settings.max_backlog_tokens) == ("preempt", 512)


def test_what_the_service_manager_says_is_not_passed_on(home: Path):
    write("mine", GOOD)
    base = {"NOTIFY_SOCKET": "/n", "LISTEN_FDS": "1", "HOME": "/h"}
    made = plan.environment(store.load("mine"), {}, Path("/l"), base)
    assert made["HOME"] == "/h"
    assert not {"NOTIFY_SOCKET", "LISTEN_FDS"} & set(made)

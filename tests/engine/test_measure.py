"""`tfctl profile measure` on the real engine, with two layers of made-up weights and a key."""

import tomllib

import pytest
from engine_rig import Rig

SMALL = ("--load-format", "dummy", "--json-model-override-args", '{"num_hidden_layers": 2}')
QUICK = ("--as", "measured", "--quick", "--window", "0.5")


@pytest.fixture
def keyed(own_engine: Rig) -> Rig:
    """With a profile of that name, whose clients must bring a key."""
    key_file = own_engine.folder / "clients.key"
    key_file.write_text("sk-of-the-clients-2b9d\n")
    key_file.chmod(0o600)
    own_engine.write_profile("keyed", engine={"api_key_file": str(key_file)})
    return own_engine


def test_what_is_measured_is_accepted_and_used_by_a_start(keyed):
    rig = keyed
    measured = rig.tfctl("profile", "measure", "--profile", "keyed", *QUICK, "--", "--port", "0", *SMALL)
    assert measured.returncode == 0, measured.stderr + rig.log()
    rig.assert_nothing_left()  # the engine was started for this, and its daemon too
    path = rig.folder / "config" / "tokenflow" / "profiles" / "measured.toml"
    performance = tomllib.loads(path.read_text())["performance"]
    assert {"decode", "prefill", "d2h", "h2d", "tails", "kv", "capacity", "made"} <= set(performance)
    assert performance["kv"] == performance["kv"] | {"pool_tokens": 4096, "how": "measured"}
    assert performance["made"]["engine"] == "SGLang 0.5.23"
    assert max(point["streams"] for point in performance["capacity"]["points"]) == 8
    assert rig.tfctl("profile", "validate", "measured").returncode == 0
    started = rig.tfctl("start", "measured", "--", "--port", "0", *SMALL)
    assert started.returncode == 0, started.stderr + rig.log()
    rig.learn_shared_files()
    status = rig.status()
    assert (status["engine"]["profile"], status["policy"]["mode"]) == ("measured", "enforce")
    rig.environment["SOME_KEY"] = "another"
    refused = rig.tfctl("profile", "measure", "--profile", "measured", "--api-key-env", "SOME_KEY")
    assert (refused.returncode, "does not take that key (HTTP 401)" in refused.stderr) == (77, True), refused.stderr
    assert "--api-key-env NAME" in refused.stderr
    assert tomllib.loads(path.read_text())["performance"] == performance, "what was measured stays"
    rig.stop()
    rig.assert_nothing_left()

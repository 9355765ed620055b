"""`tfctl profile measure` on the real engine, with two layers of made-up weights."""

import tomllib

SMALL = ("--load-format", "dummy", "--json-model-override-args", '{"num_hidden_layers": 2}')


def test_what_is_measured_is_accepted_and_used_by_a_start(own_engine):
    rig = own_engine
    measured = rig.tfctl(
        *("profile", "measure", "--profile", "demo-cpu", "--as", "measured", "--quick", "--window", "0.5"),
        *("--", "--port", "0", *SMALL),
    )
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
    rig.stop()
    rig.assert_nothing_left()

"""Two schedulers on the real engine: all is served, the first is observed, and the status says so."""

from engine_rig import Rig

TWO = ("--dp-size", "2", "--load-format", "dummy", "--json-model-override-args", '{"num_hidden_layers": 2}')
COUNT = 6


def test_all_is_served_and_what_is_not_seen_is_told(own_engine: Rig):
    rig = own_engine
    rig.environment["SGLANG_CPU_OMP_THREADS_BIND"] = "0|1"
    rig.start(*TWO)
    status = rig.status()
    assert (status["policy"]["mode"], status["policy"]["blocked_by"]) == ("observe", ["--dp-size 2"])
    kinds = {alarm["kind"]: alarm for alarm in status["alarms"]}
    assert {"schedulers_unseen", "enforce_blocked"} <= set(kinds)
    assert "has 2 schedulers and only the first is watched" in kinds["schedulers_unseen"]["message"]
    refused = rig.tfctl("mode", "enforce")
    assert (refused.returncode, "--dp-size 2" in refused.stderr) == (1, True), refused.stderr

    lengths = ("--input-tokens", "fixed:16", "--output-tokens", "fixed:24")
    run = rig.json("bench", "--requests", str(COUNT), "--rates", "none", "--ignore-eos", *lengths)["runs"][0]
    assert run["completed"] == COUNT, run
    assert 0 < len(rig.rows("--all")) < COUNT, "the second scheduler's share is not seen"
    assert rig.status()["policy"]["fault_count"] == 0, rig.log()
    rig.stop()
    rig.assert_nothing_left()

"""Tuned values that outlive engine and daemon, and the mode without a daemon, on the real engine."""

import signal

import psutil

SMALL = ("--load-format", "dummy", "--json-model-override-args", '{"num_hidden_layers": 2}')


def row(rig, key: str):
    return next(row for row in rig.json("tune")["tunables"] if row["key"] == key)


def test_persisted_values_are_those_of_the_next_engine_and_the_mode_needs_no_daemon(own_engine):
    rig = own_engine
    rig.start(*SMALL)
    tuned = rig.tfctl("tune", "quantum_s=2.5", "write_through=off", "--persist")
    assert tuned.returncode == 0, tuned.stderr
    refused = rig.tfctl("tune", "quantum_s=99", "reserve_s=1", "--persist")
    assert refused.returncode == 2
    assert rig.tfctl("tune", "reserve_s=1", "--if-revision", "0").returncode == 1
    assert rig.tfctl("tune", "reserve_s=1").returncode == 0
    rig.stop()
    rig.start(*SMALL)
    assert (row(rig, "quantum_s")["value"], row(rig, "quantum_s")["origin"]) == (2.5, "persisted")
    assert (row(rig, "write_through")["value"], row(rig, "reserve_s")["value"]) == (False, 0.5)

    psutil.Process(rig.status()["daemon"]["pid"]).send_signal(signal.SIGKILL)
    assert rig.tfctl("mode", "off").returncode == 69
    direct = rig.tfctl("mode", "off", "--direct")
    assert (direct.returncode, direct.stdout) == (0, "off\n"), direct.stderr
    assert rig.tfctl("mode", "--direct").stdout == "off\n"
    assert rig.tfctl("stop").returncode == 0
    assert rig.tfctl("mode", "--direct").returncode == 1

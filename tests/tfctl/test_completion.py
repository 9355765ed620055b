"""Live ids for the shell: quickly, or not at all."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def complete(home):
    def ask(*words: str) -> list[str]:
        environment = {
            **os.environ,
            "_TFCTL_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(["tfctl", *words]),
            "COMP_CWORD": str(len(words)),
        }
        done = subprocess.run(
            [sys.executable, "-c", "from tfctl.main import main; main()"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stderr == ""
        return done.stdout.split()

    return ask


@pytest.mark.parametrize("command", ["pause", "resume", "abort", "explain"])
def test_live_ids(complete, daemon, command):
    assert complete(command, "tf-") == [row.rid for row in daemon.rows]
    assert complete(command, "tf-00000000000000b") == ["tf-00000000000000b2"]
    assert complete(command, "zz") == []


def test_without_a_daemon_nothing_is_completed(complete):
    assert complete("abort", "tf-") == []


def test_a_daemon_that_talks_nonsense_does_not_disturb_the_shell(complete, daemon_in):
    daemon_in("garbage")
    assert complete("abort", "tf-") == []


@pytest.mark.parametrize("command", [("start",), ("restart",), ("profile", "show"), ("profile", "diff")])
def test_profile_names(complete, command):
    assert complete(*command, "demo") == ["demo-cpu"]


def test_commands(complete):
    assert "transfers" in complete("tr")

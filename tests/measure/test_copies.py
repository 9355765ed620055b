"""The copies between host and device, on whatever is here."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")


def test_both_directions_alone_and_at_once():
    command = [sys.executable, "-m", "tokenflow.measure.copies", "0.05"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=120)
    found = json.loads(done.stdout)
    for kind in ("alone_bytes_s", "both_bytes_s"):
        assert set(found[kind]) == {"h2d", "d2h"}
        assert all(value > 1e6 for value in found[kind].values())

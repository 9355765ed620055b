"""What an engine prints while the disk is full is lost, and nothing else is."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import logging, sys
from tokenflow.sglang.output import forgive
{forgive}
for number in range(100):
    print("line", number, "x" * 200)
print("to stderr", file=sys.stderr, flush=True)
logging.basicConfig(level=logging.INFO)
logging.info("a record \\u00e9 \\udc80")
sys.stdout.flush()
open(sys.argv[1], "w").write(f"{{sys.stdout.isatty()}} {{sys.stdout.fileno()}} {{sys.stdout.buffer.lost_bytes > 0}}")
"""


def run(tmp_path: Path, target: Path, forgive: str = "forgive()") -> subprocess.CompletedProcess[bytes]:
    with target.open("ab") as out:
        script = SCRIPT.format(forgive=forgive)
        return subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "told")], stdout=out, stderr=out, timeout=60
        )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_process_whose_disk_is_full_goes_on(tmp_path: Path):
    assert run(tmp_path, Path("/dev/full")).returncode == 0
    assert (tmp_path / "told").read_text() == "False 1 True"
    assert run(tmp_path, Path("/dev/full"), "").returncode != 0  # without it, it would not


def test_where_there_is_room_nothing_is_lost(tmp_path: Path):
    log = tmp_path / "log"
    assert run(tmp_path, log).returncode == 0
    lines = log.read_text().splitlines()
    assert lines[:100] == [f"line {number} {'x' * 200}" for number in range(100)]
    assert lines[100:] == ["to stderr", "INFO:root:a record \u00e9 \\udc80"]
    assert (tmp_path / "told").read_text() == "False 1 False"

"""docs/man is what the commands say, in words that man understands."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tfctl.commands import SUMMARIES
from tfctl.manpages import main, pages

FOLDER = Path(__file__).parents[2] / "docs" / "man"


def test_the_folder_is_current(tmp_path):
    main(tmp_path)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in FOLDER.glob("*.1")}
    assert kept == written, "run: python -m tfctl.manpages docs/man"


def test_every_command_has_a_page_and_the_root_names_them():
    made = pages()
    assert {f"tfctl-{name}.1" for name in SUMMARIES} < set(made)
    assert "tfctl-profile-list.1" in made
    assert all(f"tfctl\\-{name}" in made["tfctl.1"] for name in SUMMARIES)
    assert "0 done" in made["tfctl.1"]


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_nothing_to_complain_of():
    command = ["groff", "-man", "-ww", "-Tascii", "-P-cbou"]
    for name, page in pages().items():
        done = subprocess.run(command, input=page, capture_output=True, text=True, check=True)
        assert done.stderr == "", name
        assert "SYNOPSIS" in done.stdout


def test_what_roff_takes_for_its_own_is_escaped():
    for page in pages().values():
        for line in page.splitlines():
            assert not line.startswith("'")
            assert not line.startswith(".") or line[1:3].isupper() or line.startswith((".B ", ".TH", ".PP", ".TP"))

"""The pictures in the docs are what the view and the commands show now."""

import subprocess
import sys
from pathlib import Path

import pytest

import view_pictures

ROOT = Path(__file__).parents[2]
NAMES = (view_pictures.PRINTED, *view_pictures.PICTURES)
CHANGING = "view-tuning"  # its figures are others with every change of the policy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    # A process of its own: the tool sets the time zone.
    subprocess.run([sys.executable, view_pictures.__file__, "--output", folder], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("name", [name for name in NAMES if name != CHANGING])
def test_a_picture_is_up_to_date(folder, name):
    made, kept = (at.joinpath(f"{name}.svg").read_text(encoding="utf-8") for at in (folder, view_pictures.FOLDER))
    assert made == kept, "python tools/view_pictures.py, then look at docs/img"


def test_pictures_load_nothing_from_elsewhere_and_are_all_shown(folder):
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    assert {path.stem for path in view_pictures.FOLDER.glob("*.svg")} == set(NAMES)
    for name in NAMES:
        assert f"img/{name}.svg" in pages
        assert "@font-face" not in (folder / f"{name}.svg").read_text(encoding="utf-8")

"""Where published traces and tables lie beside the repository, and a clear skip where they do not."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("TOKENFLOW_DATA", Path(__file__).resolve().parents[2] / ".." / "shared" / "data"))


def dataset(name: str) -> Path:
    """The file or folder `name` of the data set. Skips the test, with the reason, where it is not there."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not at hand (looked in {DATA}; TOKENFLOW_DATA names another folder)")
    return path

"""The built-in profiles of GPUs are what their tool writes from the simulator's models."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("tokenflow.sim.models.load")
sys.path.insert(0, str(ROOT / "tools"))

import make_profiles  # noqa: E402 - where the simulator's models are here


@pytest.mark.parametrize("plan", make_profiles.PLANS, ids=lambda plan: plan.name)
def test_the_file_is_current(plan):
    text = (ROOT / "profiles" / f"{plan.name}.toml").read_text()
    assert make_profiles.render(plan) == text, "run: python tools/make_profiles.py"

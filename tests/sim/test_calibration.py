"""`--calibrate` reads the [performance] section of a profile."""

import pytest

from tokenflow.errors import ConfigurationError
from tokenflow.sim.calibration import read_calibration
from tokenflow.sim.performance import StepWork

PROFILE = """
name = "mine"
[model]
path = "demo"
served_name = "Toy"
[performance.made]
machine = "two cores"
[performance.decode]
how = "measured"
source = "profile measure"
fixed_s = 0.02
row_s = 0.001
token_s = 1e-6
[performance.prefill]
fixed_s = 0.03
row_s = 0.002
token_s = 0.0005
[performance.kv]
bytes_per_token = 46080.0
pool_tokens = 4096
[performance.d2h]
bytes_s = 4e9
[performance.h2d]
bytes_s = 5e9
both_bytes_s = 2e9
fixed_s = 0.001
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "profile.toml"
        path.write_text(text)
        return path

    return write


def test_the_formulas_are_the_profile_s(write):
    model = read_calibration(write(PROFILE))
    assert (model.gpu, model.model, model.kv_tokens(1.0)) == ("two cores", "Toy", 4096)
    assert model.step_s(StepWork(decode_batch=4, decode_kv_tokens=1000)) == pytest.approx(0.02 + 0.004 + 0.001)
    prefill = StepWork(piece_count=2, new_tokens=100, pair_count=2550)
    assert model.step_s(prefill) == pytest.approx(0.03 + 0.004 + 0.05)
    assert (model.link.h2d_contention_ratio, model.link.fixed_s) == (0.4, 0.001)
    assert model.source == "measured (profile measure), profile.toml"


def test_figures_that_nobody_measured_are_not_called_measured(write):
    model = read_calibration(write(PROFILE.replace('"measured"', '"derived"', 1)))
    assert model.source.startswith("derived (profile measure)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 'x'", r"no \[performance\] section"),
        ("[performance]\n", "missing required field `decode`"),
        (PROFILE.replace("fixed_s = 0.02", "fixed_s = 'a'"), "Expected `float`"),
        ("[[", "is not TOML"),
    ],
)
def test_what_is_wrong_is_said_with_the_way_to_a_right_one(write, text, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_calibration(write(text))
    assert "tfctl profile measure" in caught.value.hint


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot read"):
        read_calibration(tmp_path / "none.toml")

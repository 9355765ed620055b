"""`tfctl explain` on numbers: the seed article's figures, without a daemon."""

import json
import subprocess
import sys

import jsonschema
import pytest

from tfctl.schemas import schema_of

FIGURES = ["--rate", "20", "--evict-ms", "80", "--load-ms", "220", "--schedule-ms", "20", "--safety-factor", "1.5"]


def explain(tfctl, *arguments):
    outcome = tfctl("explain", *arguments, "--json")
    assert outcome.code == 0, outcome
    document = json.loads(outcome.out)
    jsonschema.validate(document, schema_of("tokenflow.explain/1"))
    return document


def test_ten_tokens_are_enough_and_nine_are_not(tfctl, home):
    ten = explain(tfctl, "--buffer", "10", *FIGURES)
    assert ten["required_runway_s"] == 0.48
    assert ten["required_tokens"] == 10
    assert ten["runway_s"] == 0.5
    assert ten["preemptible"] is True
    assert ten["terms"]["transition_s"] == 0.32
    assert ten["terms"]["protected_tokens"] == 9.6
    nine = explain(tfctl, "--buffer", "9", *FIGURES)
    assert nine["runway_s"] == 0.45
    assert nine["preemptible"] is False
    assert nine["required_tokens"] == 10


def test_a_newcomer_s_prefill_counts_with_the_reserve(tfctl, home):
    with_prefill = explain(tfctl, "--buffer", "10", *FIGURES, "--prefill-ms", "100")
    assert with_prefill["required_runway_s"] == 0.6
    assert with_prefill["required_tokens"] == 12
    assert with_prefill["preemptible"] is False
    no_reserve = explain(tfctl, "--buffer", "10", *FIGURES, "--prefill-ms", "100", "--reserve-s", "0")
    assert no_reserve["required_runway_s"] == 0.48
    reserve_alone = explain(tfctl, "--buffer", "10", *FIGURES, "--reserve-s", "2")
    assert reserve_alone["required_runway_s"] == 2.0


def test_the_table_shows_every_term(tfctl, home):
    text = tfctl("explain", "--buffer", "10", *FIGURES).out
    for words in ("0.080 s", "0.220 s", "0.020 s", "0.320 s", "0.480 s", "9.6", "20 tok/s", "0.50 s"):
        assert words in text
    assert "safe to pause" in text.splitlines()[-1]
    assert "not safe" in tfctl("explain", "--buffer", "9", *FIGURES).out


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--buffer", "10"),
        ("--rate", "20"),
        ("--buffer", "10", "--rate", "0"),
        ("--buffer", "10", "--rate", "nan"),
        ("--buffer", "10", "--rate", "inf"),
        ("--buffer", "-1", "--rate", "20"),
        ("--buffer", "10", "--rate", "20", "--load-ms", "-5"),
        ("--buffer", "10", "--rate", "20", "--safety-factor", "0.5"),
        ("--buffer", "ten", "--rate", "20"),
    ],
)
def test_bad_values_are_usage_errors(arguments, tfctl, home):
    outcome = tfctl("explain", *arguments, "--json")
    assert outcome.code == 2
    error = json.loads(outcome.out or outcome.err)["error"]
    assert error["code"] == "usage"
    assert error["hint"]


def test_a_live_request_is_explained_by_the_daemon(tfctl, daemon):
    text = tfctl("explain", "tf-00000000000000a1").out
    assert "safety_factor" in text
    outcome = tfctl("explain", "r1")
    assert outcome.code == 1
    assert "tfctl ps" in outcome.err


def test_numpy_is_not_loaded():
    code = "import sys, tfctl.commands.explain; print('numpy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"

"""The tunables of the contract: keys, defaults, ranges; all are taken or none."""

import math

import pytest

from tokenflow.policy.states import Mode, Variant
from tokenflow.policy.tunables import Restore, Tunables, check, specs

CONTRACT = {
    "mode": ("observe", None, None), "variant": ("tokenflow", None, None), "safety_factor": (1.5, 1, 20),
    "reserve_s": (0.5, 0, 10), "surplus_s": (2.0, 0, 60), "tail_quantile": (0.99, 0.5, 0.999),
    "default_rate_tok_s": (6.0, 0.1, 10000), "ttft_target_s": (1.0, 0.05, 60), "starvation_bound_s": (30, 1, 3600),
    "first_run_tokens": (8, 1, 4096), "quantum_s": (1.0, 0, 30), "max_swaps_per_s": (50, 0, 10000),
    "weight_ttft": (1, 0, 100), "weight_stall": (3, 0, 100), "weight_throughput": (1, 0, 100),
    "min_benefit_s": (0.05, 0, 10), "overload_enter_ratio": (1.0, 0.5, 2), "overload_exit_ratio": (0.9, 0.1, 2),
    "write_through": (True, None, None), "transfer_budget_ratio": (0.8, 0, 1), "restore": ("auto", None, None),
    "max_unread_ratio": (0.1, 0, 1),
}  # fmt: skip


def test_keys_defaults_and_ranges_are_those_of_the_contract():
    assert {spec.key: (spec.default, spec.minimum, spec.maximum) for spec in specs()} == CONTRACT


def test_each_has_a_meaning_and_choices_where_there_are_some():
    by_key = {spec.key: spec for spec in specs()}
    assert all(spec.text for spec in by_key.values())
    assert by_key["mode"].choices == ("observe", "enforce", "off")
    assert by_key["variant"].choices == ("tokenflow", "paper", "guide", "fcfs")
    assert by_key["restore"].choices == ("auto", "load", "recompute")
    assert by_key["write_through"].choices == ("true", "false")
    assert by_key["quantum_s"].choices == ()


def test_text_as_typed_is_taken():
    changed, problems = check(
        {"mode": "enforce", "variant": " PAPER ", "quantum_s": "2", "write_through": "off", "first_run_tokens": "16",
         "restore": "load"},
        Tunables(),
    )  # fmt: skip
    assert problems == []
    assert changed == Tunables(
        mode=Mode.ENFORCE, variant=Variant.PAPER, quantum_s=2.0, write_through=False, first_run_tokens=16,
        restore=Restore.LOAD,
    )  # fmt: skip
    assert isinstance(changed.first_run_tokens, int)


def test_typed_values_are_taken_and_others_stay():
    base = Tunables(quantum_s=3.0)
    changed, problems = check({"safety_factor": 2, "write_through": False}, base)
    assert problems == []
    assert (changed.safety_factor, changed.quantum_s, changed.write_through) == (2.0, 3.0, False)


@pytest.mark.parametrize("key", [key for key, (_, low, _) in CONTRACT.items() if low is not None])
def test_ends_of_the_range_are_inside_and_beyond_is_not(key):
    _, low, high = CONTRACT[key]
    base = Tunables(overload_enter_ratio=2.0, overload_exit_ratio=0.1)
    for value in (low, high):
        if not (key.startswith("overload") and value in (2, 2.0) and key == "overload_exit_ratio"):
            assert check({key: value}, base)[1] == []
    for value in (low - 1e-3, high * 1.001 + 1e-6, math.nan, math.inf, -math.inf, "abc", "", None, True, [1]):
        changed, (problem,) = check({key: value}, base)
        assert changed is base
        assert problem.key == key
        assert key in problem.message


@pytest.mark.parametrize(
    ("key", "value"),
    [("mode", "on"), ("variant", ""), ("restore", "maybe"), ("write_through", "perhaps"), ("first_run_tokens", 2.5)],
)
def test_values_of_the_wrong_kind(key, value):
    _, (problem,) = check({key: value}, Tunables())
    assert problem.key == key


def test_all_problems_are_told_and_nothing_is_taken():
    base = Tunables()
    changed, problems = check({"quantum_s": 5, "safety_factor": 0.5, "nonsense": 1, "restore": "x"}, base)
    assert changed is base
    assert [problem.key for problem in problems] == ["safety_factor", "nonsense", "restore"]


def test_overload_must_end_below_where_it_begins():
    for changes, key in (
        ({"overload_exit_ratio": 1.0}, "overload_exit_ratio"),
        ({"overload_enter_ratio": 0.8}, "overload_enter_ratio"),
        ({"overload_enter_ratio": 0.8, "overload_exit_ratio": 0.85}, "overload_exit_ratio"),
    ):
        _, (problem,) = check(changes, Tunables())
        assert problem.key == key
        assert "below" in problem.message
    assert check({"overload_enter_ratio": 0.8, "overload_exit_ratio": 0.7}, Tunables())[1] == []


def test_messages_say_what_is_allowed():
    def message(key, value):
        return check({key: value}, Tunables())[1][0].message

    assert message("mode", "on") == "mode is one of observe, enforce, off; got 'on'"
    assert message("write_through", 7) == "write_through is true or false; got 7"
    assert message("first_run_tokens", 2.5) == "first_run_tokens is a whole number; got 2.5"
    assert message("quantum_s", "x") == "quantum_s is a number; got 'x'"
    assert message("quantum_s", 31) == "quantum_s lies between 0 and 30; got 31"
    assert message("nonsense", 1) == "there is no tunable 'nonsense'"

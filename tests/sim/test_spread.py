"""Intervals over seeds, against published quantiles and against their own promise."""

import random
from statistics import stdev

import pytest

from tokenflow.sim.spread import paired_spread, spread


def test_three_values():
    found = spread([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half_width == pytest.approx(4.303 / 3**0.5)  # sd 1, t(2) 4.303
    assert found.interval == pytest.approx((2.0 - 2.4843, 2.0 + 2.4843), abs=1e-3)


def test_one_value_says_nothing_of_its_spread():
    assert spread([4.0]).half_width is None
    assert spread([4.0]).interval is None
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_ninety_five_of_a_hundred_intervals_hold_the_mean():
    rng = random.Random(1)
    for count in (3, 5, 60):
        held = 0
        for _ in range(2000):
            low, high = spread([rng.gauss(7.0, 3.0) for _ in range(count)]).interval
            held += low <= 7.0 <= high
        assert 0.935 <= held / 2000 <= 0.965


def test_the_interval_of_a_difference_ignores_what_both_share():
    rng = random.Random(2)
    shared = [rng.gauss(0.0, 10.0) for _ in range(8)]
    ours = [value + 1.0 + rng.gauss(0.0, 0.1) for value in shared]
    found = paired_spread(ours, shared)
    low, high = found.interval
    assert low < 1.0 < high
    assert high - low < 0.5
    assert spread(ours).half_width > 5.0
    with pytest.raises(ValueError, match="zip"):
        paired_spread([1.0, 2.0], [1.0])


@pytest.mark.parametrize(("freedom", "quantile"), [(40, 2.021), (60, 2.000), (120, 1.980), (1000, 1.962)])
def test_many_values_follow_the_published_quantiles(freedom, quantile):
    values = [0.0, 1.0] * ((freedom + 1) // 2) + [0.0] * ((freedom + 1) % 2)
    assert spread(values).half_width == pytest.approx(quantile * stdev(values) / len(values) ** 0.5, rel=2e-3)

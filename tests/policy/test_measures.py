"""Distributions, the cost estimator and the capacity fit."""

import math

import numpy as np
import pytest

from tokenflow.policy.capacity import StepTimeFit, capacity_tok_s
from tokenflow.policy.costs import Costs
from tokenflow.policy.distributions import SlidingTail
from tokenflow.policy.estimator import CostEstimator


def filled(values, **options):
    tail = SlidingTail(**options)
    for i, value in enumerate(values):
        tail.observe(float(i), value)
    return tail


def test_quantiles_are_linear_as_numpy_s():
    values = list(range(100))
    tail = filled(values)
    for q in (0.01, 0.5, 0.99):
        assert tail.quantile(q) == pytest.approx(np.quantile(values, q))
    assert tail.mean() == pytest.approx(49.5)
    assert tail.count == tail.total_count == 100


def test_no_sample_and_no_prior_is_none_and_a_prior_stands_in():
    assert SlidingTail().quantile(0.99) is None
    assert SlidingTail().mean() is None
    assert SlidingTail(prior=3.0).quantile(0.5) == 3.0
    assert SlidingTail(prior=3.0).mean() == 3.0
    assert SlidingTail(prior=3.0).count == 0


def test_few_samples_are_mixed_with_the_prior_never_hopefully():
    assert filled([1.0] * 5, prior=3.0).quantile(0.99) == pytest.approx(0.25 * 1 + 0.75 * 3)
    assert filled([5.0] * 5, prior=3.0).quantile(0.99) == 5.0  # worse than the prior was seen
    assert filled([1.0] * 5, prior=3.0).quantile(0.01) == 1.0  # low tails: a bandwidth, worse is lower
    assert filled([9.0] * 5, prior=3.0).quantile(0.01) == pytest.approx(0.25 * 9 + 0.75 * 3)
    assert filled([1.0] * 20, prior=3.0).quantile(0.99) == 1.0
    assert filled([1.0] * 2).quantile(0.99) == 1.0


def test_old_samples_leave_by_age_and_by_number():
    assert filled([9.0, 1.0, 1.0, 1.0], window_s=2.0).quantile(1.0) == 1.0
    assert filled([9.0, 1.0, 1.0, 1.0], window_s=3.0).quantile(1.0) == 9.0
    assert filled([9.0] + [1.0] * 4, capacity=4).quantile(1.0) == 1.0
    assert filled([9.0] + [1.0] * 4, capacity=4).count == 4


def test_impossible_samples_are_dropped_and_a_clock_back_ages_nothing():
    tail = filled([1.0, 2.0])
    for bad in (math.nan, math.inf, -1.0):
        tail.observe(2.0, bad)
    tail.observe(math.nan, 50.0)
    assert tail.total_count == 2
    tail.observe(-600.0, 3.0)
    assert tail.count == 3
    assert tail.quantile(1.0) == 3.0


def test_bandwidth_is_a_low_tail_and_service_times_high_ones():
    estimator = CostEstimator(Costs(evict_fixed_s=0.0, load_fixed_s=0.0))
    for i in range(100):
        estimator.observe_evict(float(i), 1_000.0 * (i + 1), 1.0)
        estimator.observe_load(float(i), 2_000.0 * (i + 1), 1.0)
        estimator.observe_schedule(float(i), 0.01 * (i + 1))
        estimator.observe_prefill(100, 0.005 + 100 * 1e-4)
    costs = estimator.costs(100.0, 0.99, 300.0)
    assert costs.d2h_bytes_s == pytest.approx(np.quantile(1_000.0 * np.arange(1, 101), 0.01))
    assert costs.h2d_bytes_s == pytest.approx(np.quantile(2_000.0 * np.arange(1, 101), 0.01))
    assert costs.schedule_s == pytest.approx(np.quantile(0.01 * np.arange(1, 101), 0.99))
    assert costs.prefill_fixed_s + 100 * costs.prefill_s_per_token == pytest.approx(0.015, rel=0.01)
    assert costs.evict_tail_s == pytest.approx(1.0)
    assert costs.mean_kv_tokens == 300.0


def test_the_profile_decides_until_something_was_measured():
    prior = Costs(d2h_bytes_s=7.0, h2d_bytes_s=8.0, schedule_s=0.3, prefill_s_per_token=0.5, evict_tail_s=0.9)
    costs = CostEstimator(prior).costs(0.0, 0.99, 0.0)
    assert (costs.d2h_bytes_s, costs.h2d_bytes_s, costs.schedule_s) == (7.0, 8.0, 0.3)
    assert (costs.prefill_s_per_token, costs.evict_tail_s) == (0.5, 0.9)


def test_transfers_without_bytes_or_time_say_nothing_of_bandwidth():
    estimator = CostEstimator()
    for byte_count, service_s in ((0.0, 1.0), (10.0, 0.0), (10.0, 0.001), (10.0, math.nan)):
        estimator.observe_evict(0.0, byte_count, service_s)
        estimator.observe_load(0.0, byte_count, service_s)
    estimator.observe_prefill(0, 1.0)
    costs = estimator.costs(0.0, 0.99, 0.0)
    assert (costs.d2h_bytes_s, costs.h2d_bytes_s) == (Costs().d2h_bytes_s, Costs().h2d_bytes_s)
    assert costs.prefill_s_per_token == Costs().prefill_s_per_token


def test_arrival_and_release_rates_are_moving_averages():
    estimator = CostEstimator()
    for i in range(400):
        estimator.observe_arrival(0.25 * i)
        estimator.observe_release(0.5 * i)
    costs = estimator.costs(100.0, 0.99, 0.0)
    assert costs.arrival_rate_per_s == pytest.approx(4.0, rel=0.05)
    later = CostEstimator()
    later.observe_arrival(0.0)
    assert later.costs(0.0, 0.99, 0.0).arrival_rate_per_s == pytest.approx(0.1)
    assert later.costs(10.0, 0.99, 0.0).arrival_rate_per_s == pytest.approx(0.1 / math.e)
    assert later.costs(10.0, 0.99, 0.0).release_rate_per_s == 0.0
    assert estimator.costs(200.0, 0.99, 0.0).release_rate_per_s == pytest.approx(2.0, rel=0.05)


def test_costs_are_taken_anew_a_few_times_a_second():
    estimator = CostEstimator()
    first = estimator.costs(0.0, 0.99, 0.0)
    estimator.observe_schedule(0.1, 9.0)
    assert estimator.costs(0.2, 0.99, 0.0) is first
    assert estimator.costs(0.2, 0.5, 0.0) is not first
    assert estimator.costs(0.3, 0.99, 0.0).schedule_s == 9.0
    assert estimator.costs(-60.0, 0.99, 0.0) is not None


TRUE = (0.012, 3e-4, 2e-7)


def steps(fit, batches, contexts, noise=0.0):
    draw = np.random.default_rng(3)
    for batch in batches:
        for context in contexts:
            total = batch * context
            step_s = TRUE[0] + TRUE[1] * batch + TRUE[2] * total
            fit.observe(batch, total, step_s * (1 + noise * draw.standard_normal()))
    return fit


def test_the_fit_finds_the_coefficients_where_batches_vary():
    fit = steps(StepTimeFit(forgetting=1.0, ridge=1e-6), range(1, 65), (200, 1_000, 3_000))
    assert fit.coefficients == pytest.approx(TRUE, rel=0.02)
    assert fit.step_s(32, 32_000) == pytest.approx(TRUE[0] + 32 * TRUE[1] + 32_000 * TRUE[2], rel=0.01)
    assert fit.count == 64 * 3


def test_a_steady_batch_leaves_the_other_directions_to_the_prior():
    prior = (0.010, 2.5e-4, 1e-7)
    fit = StepTimeFit(prior)
    for _ in range(500):
        fit.observe(16, 16_000.0, TRUE[0] + 16 * TRUE[1] + 16_000 * TRUE[2])
    seen_s = TRUE[0] + 16 * TRUE[1] + 16_000 * TRUE[2]
    assert fit.step_s(16, 16_000) == pytest.approx(seen_s, rel=0.02)
    truth_s = TRUE[0] + 128 * TRUE[1] + 128_000 * TRUE[2]
    assert fit.step_s(128, 128_000) == pytest.approx(truth_s, rel=0.25)
    assert all(value >= 0 for value in fit.coefficients)


def test_coefficients_are_never_negative():
    fit = StepTimeFit(ridge=1e-9)
    for batch in range(1, 50):
        fit.observe(batch, 0.0, 0.05 - 0.0005 * batch)
    assert all(value >= 0 for value in fit.coefficients)
    assert fit.coefficients[1] == 0.0
    assert fit.step_s(10, 0) > 0.0


def test_the_fit_forgets_what_was():
    fit = StepTimeFit(ridge=1e-3)
    for _ in range(1_000):
        fit.observe(8, 8_000, 0.02)
    for _ in range(2_000):
        fit.observe(8, 8_000, 0.05)
    assert fit.step_s(8, 8_000) == pytest.approx(0.05, rel=0.01)


def test_impossible_steps_are_dropped():
    fit = StepTimeFit()
    before = fit.coefficients
    for args in ((0, 10, 0.1), (4, -1, 0.1), (4, 10, 0.0), (4, 10, math.nan), (4, math.inf, 0.1), (4, 10, -1.0)):
        fit.observe(*args)
    assert fit.count == 0
    assert fit.coefficients == before


def test_capacity_is_of_the_batch_that_could_run():
    fit = steps(StepTimeFit(forgetting=1.0, ridge=1e-6), range(1, 65), (200, 1_000, 3_000))
    options = {"slot_count": 256, "kv_total_tokens": 64_000.0, "mean_context_tokens": 1_000.0}
    truth = 64 / (TRUE[0] + 64 * TRUE[1] + 64_000 * TRUE[2])
    assert capacity_tok_s(fit, **options) == pytest.approx(truth, rel=0.02)
    assert capacity_tok_s(fit, **options, prefill_ratio=0.25, batch_ratio=0.25) == pytest.approx(truth / 2, rel=0.02)
    assert capacity_tok_s(fit, **{**options, "slot_count": 8}) == pytest.approx(
        8 / (TRUE[0] + 8 * TRUE[1] + 8_000 * TRUE[2]), rel=0.02
    )
    assert capacity_tok_s(fit, **options, prefill_ratio=2.0) == 0.0
    assert capacity_tok_s(fit, **options, prefill_ratio=-1.0) == pytest.approx(truth, rel=0.02)


def test_where_nothing_fits_there_is_no_capacity():
    fit = StepTimeFit()
    assert capacity_tok_s(fit, slot_count=0, kv_total_tokens=1e6, mean_context_tokens=100) is None
    assert capacity_tok_s(fit, slot_count=8, kv_total_tokens=50, mean_context_tokens=100) is None
    assert capacity_tok_s(fit, slot_count=8, kv_total_tokens=50, mean_context_tokens=0.0) is not None
    assert (
        capacity_tok_s(StepTimeFit((0.0, 0.0, 0.0)), slot_count=8, kv_total_tokens=1e6, mean_context_tokens=1) is None
    )


def test_all_of_an_estimator_s_windows_slide():
    estimator = CostEstimator(Costs(evict_fixed_s=0.0, load_fixed_s=0.0), window_s=10.0)
    for name in ("evict_s", "load_s", "schedule_s"):
        tail = getattr(estimator, name)
        tail.observe(0.0, 100.0)
        for i in range(30):
            tail.observe(20.0 + 0.1 * i, 1.0)
        assert tail.quantile(1.0) == 1.0, name
    estimator.observe_evict(30.0, 1.0, 1.0)
    estimator.observe_load(30.0, 1.0, 1.0)
    for i in range(30):
        estimator.observe_evict(50.0 + 0.1 * i, 500.0, 1.0)
        estimator.observe_load(50.0 + 0.1 * i, 900.0, 1.0)
    costs = estimator.costs(55.0, 0.99, 0.0)
    assert (costs.d2h_bytes_s, costs.h2d_bytes_s) == (500.0, 900.0)


def test_fixed_costs_come_from_the_profile_and_are_taken_off_before_bandwidth():
    prior = Costs(evict_fixed_s=0.5, load_fixed_s=0.25)
    estimator = CostEstimator(prior)
    for i in range(40):
        estimator.observe_evict(float(i), 100.0, 1.5)
        estimator.observe_load(float(i), 100.0, 2.25)
    costs = estimator.costs(40.0, 0.5, 0.0)
    assert (costs.evict_fixed_s, costs.load_fixed_s) == (0.5, 0.25)
    assert costs.d2h_bytes_s == pytest.approx(100.0)
    assert costs.h2d_bytes_s == pytest.approx(50.0)


def test_a_step_in_which_streams_only_come_back_is_not_the_price_of_a_token():
    """One new token each in a step of 0.1 s: the step is what costs, and prompts are as cheap as they were."""
    estimator = CostEstimator()
    for i in range(60):
        count = 1 + i % 8
        estimator.observe_prefill(count, 0.1 + 0.004 * count, count)
        estimator.observe_prefill(40 * count, 0.1 + 0.004 * count + 0.001 * 40 * count, count)
    costs = estimator.costs(0.0, 0.99, 0.0)
    assert costs.prefill_fixed_s == pytest.approx(0.1, rel=0.1)
    assert costs.prefill_row_s == pytest.approx(0.004, rel=0.3)
    assert costs.prefill_s_per_token == pytest.approx(0.001, rel=0.05)


def test_a_bandwidth_is_never_nothing():
    estimator = CostEstimator(Costs(evict_fixed_s=0.0, load_fixed_s=0.0))
    for i in range(40):
        estimator.observe_evict(float(i), 1e-9, 1.0)
        estimator.observe_load(float(i), 1e-9, 1.0)
    costs = estimator.costs(40.0, 0.99, 0.0)
    assert (costs.d2h_bytes_s, costs.h2d_bytes_s) == (1.0, 1.0)


def test_the_window_holds_512_samples_of_five_minutes():
    tail = filled([9.0] + [1.0] * 511)
    assert tail.count == 301  # one a second: those of the last 300 s, both ends included
    fast = SlidingTail()
    for i in range(600):
        fast.observe(0.1 * i, float(i))
    assert fast.count == 512
    assert fast.quantile(0.0) == 88.0


def test_capacity_of_one_and_of_whole_batches_only():
    fit = StepTimeFit((0.02, 0.0, 1e-6))
    one = capacity_tok_s(fit, slot_count=8, kv_total_tokens=100, mean_context_tokens=100)
    assert one == pytest.approx(1 / (0.02 + 100e-6))
    assert capacity_tok_s(fit, slot_count=8, kv_total_tokens=199, mean_context_tokens=100) == one
    two = capacity_tok_s(fit, slot_count=8, kv_total_tokens=200, mean_context_tokens=100)
    assert two == pytest.approx(2 / (0.02 + 200e-6))
    assert capacity_tok_s(fit, slot_count=8, kv_total_tokens=8, mean_context_tokens=0.5) == pytest.approx(8 / 0.020008)

"""What steps say of prices and capacity: decode steps, prefill steps, and both in one."""

import pytest

from tokenflow.policy.capacity import StepTimeFit
from tokenflow.policy.costs import Costs
from tokenflow.policy.estimator import CostEstimator
from tokenflow.policy.step_meter import MeasuredStep, StepMeter

DECODE_S = 0.05


def meter_that_knows_decoding():
    costs = CostEstimator(Costs())
    meter = StepMeter(costs, StepTimeFit((DECODE_S, 0.0, 0.0)))
    for number in range(40):
        meter.take(MeasuredStep(False, 8, 800), DECODE_S, number * DECODE_S)
    return meter, costs


def lost_share(step, count=100, step_s=0.2):
    meter, _ = meter_that_knows_decoding()
    before = meter.capacity_tok_s(8, 10_000, 100.0)
    for number in range(count):
        meter.take(step, step_s, 2.0 + number * step_s)
    return 1.0 - meter.capacity_tok_s(8, 10_000, 100.0) / before


def test_prompts_take_the_time_of_their_steps_from_capacity():
    assert lost_share(MeasuredStep(True, 1, 0, 100, 1.0)) == pytest.approx(1 - (1 - 0.2 / 60) ** 100, rel=1e-3)


def test_streams_that_come_back_take_nothing():
    assert lost_share(MeasuredStep(True, 4, 0, 4, 0.0)) == pytest.approx(0.0, abs=1e-9)


def test_a_mixed_step_takes_only_what_it_takes_longer_than_decoding_alone():
    mixed = lost_share(MeasuredStep(True, 1, 0, 100, 1.0, mixed_size=8, mixed_context_tokens=800))
    assert mixed == pytest.approx(0.75 * (1 - (1 - 0.2 / 60) ** 100), rel=0.02)


def test_the_price_of_prefill_leaves_out_those_who_decode_beside_it():
    priced = {}
    for size in (0, 8):
        meter, costs = meter_that_knows_decoding()
        for number in range(60):
            tokens = 50 + 10 * (number % 5)
            step = MeasuredStep(True, 1, 0, tokens, 1.0, mixed_size=size, mixed_context_tokens=100 * size)
            meter.take(step, 0.06 + 0.001 * tokens, 2.0 + number * 0.1)
        fitted = costs.costs(8.0, 0.99, 100.0)
        priced[size] = fitted.prefill_fixed_s + fitted.prefill_row_s + 70 * fitted.prefill_s_per_token
    assert priced[0] - priced[8] == pytest.approx(DECODE_S, rel=0.1)

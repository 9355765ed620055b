"""What bench/simulated.py calibrates the simulator with: steps found in the times at which streams' tokens came."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sim_rig import small_gpu

from tokenflow.sim.performance import StepWork

MODULE = Path(__file__).parents[2] / "bench" / "step_times.py"


@pytest.fixture(scope="module")
def step_times():
    spec = importlib.util.spec_from_file_location("step_times", MODULE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[spec.name]


def test_a_decode_step_is_a_mean_over_the_time_in_which_all_run(step_times):
    first = [1.0, 1.5, 2.0, 2.1, 2.2, 2.5]  # alone until 2.0
    second = [2.0, 2.1, 2.2, 2.5, 3.9]  # alone after 2.5
    streams, kv_tokens, step_s = step_times.decode_step([first, second], 100)
    assert streams == 2
    assert step_s == pytest.approx(0.5 / 3)
    assert kv_tokens == 100 + 5 + 100 + 3  # at 2.25


def test_streams_that_never_ran_together_are_no_measurement(step_times):
    with pytest.raises(AssertionError, match="same time"):
        step_times.decode_step([[1.0, 1.1], [2.0, 2.1]], 10)


def test_prompts_of_one_step_come_together_and_the_first_step_has_the_way_there_in_it(step_times):
    times = [[0.5], [0.801], [0.8], [0.802], [1.10], [1.101], [1.102], [1.103]]
    steps = step_times.prefill_steps(times, 64)
    assert [(one.prompt_count, one.new_tokens) for one in steps] == [(3, 192), (4, 256)]
    assert [one.seconds for one in steps] == pytest.approx([0.3, 0.3], abs=0.003)


def test_what_no_step_could_hold_is_left_out(step_times):
    times = [[0.5], [1.0], [1.001], [1.002], [1.6], [1.602]]
    assert [one.prompt_count for one in step_times.prefill_steps(times, 256)] == [2]


@pytest.mark.parametrize("times", [[], [[1.0]], [[1.0], [1.0]]])
def test_a_single_step_says_nothing(step_times, times):
    assert step_times.prefill_steps(times, 64) == []


def engine_times(gpu, count, prompt, output, chunk=512, noise=None):
    """Token times of prompts sent at once to an engine that takes the first alone, as real ones do."""
    rng = np.random.default_rng(1)

    def took(work):
        return gpu.step_s(work) * (1.0 if noise is None else rng.normal(1.0, noise))

    now_s, waiting, running = 0.3, count, 0
    times = [[] for _ in range(count)]
    while waiting:
        now_count = 1 if waiting == count else min(waiting, chunk // prompt)
        new = now_count * prompt
        now_s += took(StepWork(piece_count=now_count, new_tokens=new, pair_count=new * (prompt + 1) / 2))
        for index in range(running, running + now_count):
            times[index].append(now_s + 1e-4 * index)
        running, waiting = running + now_count, waiting - now_count
    for made in range(1, output):
        now_s += took(StepWork(decode_batch=count, decode_kv_tokens=count * (prompt + made)))
        for index in range(count):
            times[index].append(now_s + 1e-4 * index)
    return times


@pytest.mark.parametrize("noise", [None, 0.02])
async def test_the_engine_s_own_formulas_come_out(step_times, monkeypatch, noise):
    gpu = replace(
        small_gpu(), step_fixed_s=0.03, stream_s=0.008, kv_token_s=4e-6, piece_s=0.01, new_token_s=8e-4, pair_s=0.0,
        prefill_fixed_s=0.04,
    )  # fmt: skip

    async def times_of(endpoint, streams, prompt_tokens, max_tokens, rng):
        return engine_times(gpu, streams, prompt_tokens, max_tokens, noise=noise)

    monkeypatch.setattr(step_times, "_times_of", times_of)
    found = await step_times.measure_step_times(None, None)
    close = 0.01 if noise is None else 0.08
    for streams, context in ((1, 80), (8, 80), (8, 168)):
        work = StepWork(decode_batch=streams, decode_kv_tokens=streams * context)
        assert found.decode_s(streams, context) == pytest.approx(gpu.step_s(work), rel=close)
    for prompts, tokens in ((1, 64), (4, 512), (8, 8)):
        work = StepWork(piece_count=prompts, new_tokens=tokens)
        said_s = found.prefill_fixed_s + prompts * found.prompt_s + tokens * found.token_s
        assert said_s == pytest.approx(gpu.step_s(work), rel=2 * close)
    doubled = step_times.mean_of(found, replace(found, stream_s=3 * found.stream_s))
    assert doubled.stream_s == pytest.approx(2 * found.stream_s)
    assert doubled.token_s == found.token_s

"""What SGLang's batches are to the meter."""

from types import SimpleNamespace

import pytest

from tokenflow.sglang.step_meter import LaunchStamps

DECODE, EXTEND = (SimpleNamespace(is_extend=lambda is_extend=is_extend: is_extend) for is_extend in (False, True))


class Heard:
    def __init__(self):
        self.steps = []

    def take(self, step, step_s, now_s):
        self.steps.append((step, step_s))


def req(prompt, made, retractions=0):
    return SimpleNamespace(origin_input_ids=[0] * prompt, output_ids=[0] * made, retraction_count=retractions)


def batch(mode, reqs, launch_s, *, extends=None, decoding=None, after_idle_gap=False):
    return SimpleNamespace(
        forward_mode=mode, reqs=reqs, launch_ts=launch_s, after_idle_gap=after_idle_gap, decoding_reqs=decoding,
        extend_lens=extends, extend_num_tokens=sum(extends) if extends else None,
    )  # fmt: skip


def described(one):
    heard = Heard()
    stamps = LaunchStamps(heard)
    stamps.take(one, 1.0)
    stamps.take(batch(DECODE, [], one.launch_ts + 0.25), 2.0)
    ((step, step_s),) = heard.steps
    assert step_s == pytest.approx(0.25)
    return step


def test_a_decode_step():
    step = described(batch(DECODE, [req(10, 5), req(20, 1)], 1.0))
    assert (step.is_prefill, step.batch_size, step.context_tokens) == (False, 2, 36)


def test_a_prefill_step_of_a_prompt_and_of_one_that_comes_back():
    step = described(batch(EXTEND, [req(30, 0), req(20, 9, retractions=1)], 1.0, extends=[30, 10]))
    assert (step.is_prefill, step.batch_size, step.new_tokens, step.prompt_ratio) == (True, 2, 40, 0.75)
    assert step.mixed_size == 0


def test_a_mixed_step_counts_those_who_decode_apart():
    runs = [req(10, 5), req(20, 1)]
    step = described(batch(EXTEND, [req(30, 0), *runs], 1.0, extends=[30, 1, 1], decoding=runs))
    assert (step.is_prefill, step.batch_size, step.new_tokens, step.prompt_ratio) == (True, 1, 30, 1.0)
    assert (step.mixed_size, step.mixed_context_tokens) == (2, 36)


def test_a_batch_of_decoding_requests_alone_is_a_decode_step_whatever_its_mode():
    runs = [req(10, 5)]
    step = described(batch(EXTEND, runs, 1.0, extends=[1], decoding=runs))
    assert (step.is_prefill, step.batch_size, step.context_tokens) == (False, 1, 15)

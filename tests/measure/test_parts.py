"""What is measured, how figures come of it, and the section that they become. Without an engine."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenflow.errors import OperationError
from tokenflow.measure.engine_facts import EngineFacts, facts_of
from tokenflow.measure.measurement import Measured, decode_fit, performance
from tokenflow.measure.plane import fit_plane
from tokenflow.measure.points import DecodePoint, decode_points, prefill_sizes
from tokenflow.measure.streams import DecodeSample, PrefillSample, decode_sample, stream_plan
from tokenflow.measure.swaps import SwapSamples
from tokenflowd.profiles.performance import PerformanceSection

FACTS = EngineFacts(slot_count=8, pool_tokens=4096, chunk_tokens=512, context_tokens=4096, has_host_pool=True)
MADE = {"at": "2026-01-01T00:00:00Z", "engine": "SGLang 0.5.23", "tokenflow": "0.1.0", "machine": "2 x a CPU"}


@given(st.tuples(st.floats(1e-4, 1), st.floats(1e-6, 1e-2), st.floats(1e-9, 1e-4)))
@settings(max_examples=50, deadline=None)
def test_a_plane_is_found_again(coefficients):
    rows = [[1.0, batch, batch * context] for batch in (1, 4, 16, 64) for context in (64, 512, 4096)]
    times_s = [sum(c * x for c, x in zip(coefficients, row, strict=True)) for row in rows]
    found, error = fit_plane(rows, times_s)
    assert error < 1e-6
    assert [sum(c * x for c, x in zip(found, row, strict=True)) for row in rows] == pytest.approx(times_s, rel=1e-5)


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 4096), st.floats(1e-3, 10)), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_no_coefficient_is_negative(samples):
    found, error = fit_plane([[1.0, b, b * c] for b, c, _ in samples], [t for _, _, t in samples])
    assert all(value >= 0 for value in found)
    assert error >= 0


@given(st.integers(1, 300), st.integers(64, 200_000), st.booleans())
@settings(max_examples=100, deadline=None)
def test_every_point_fits_into_the_engine(slots, pool_tokens, is_quick):
    facts = EngineFacts(slot_count=slots, pool_tokens=pool_tokens, chunk_tokens=512, context_tokens=pool_tokens)
    for point in decode_points(facts, is_quick=is_quick):
        assert point.streams <= slots
        assert point.streams * (point.prompt_tokens + point.room_tokens) <= pool_tokens
        assert point.room_tokens >= 24
    assert all(1 <= size <= 512 for size in prefill_sizes(facts, is_quick=is_quick))


def test_the_points_of_the_demo():
    points = [(point.streams, point.prompt_tokens) for point in decode_points(FACTS, is_quick=False)]
    assert points[-2:] == [(8, 64), (8, 256)]
    assert (2, 1024) in points
    assert (8, 1024) not in points
    assert [point.streams for point in decode_points(FACTS, is_quick=True)] == [1, 1, 4, 4, 8, 8]
    assert prefill_sizes(FACTS, is_quick=False) == [16, 64, 256, 512]
    assert prefill_sizes(FACTS, is_quick=True) == [16, 256, 512]


def test_prompts_have_their_length_and_share_no_beginning():
    rng = random.Random(1)
    first, second = (stream_plan(index, 50, 7, rng).extra_body["prompt"] for index in range(2))
    assert (len(first), len(second)) == (50, 50)
    assert first[:8] != second[:8]


def test_the_rate_is_that_of_whole_steps_in_which_all_ran():
    steps_s = [0.1 * number for number in range(1, 200)]
    times = [[step for step in steps_s if step > 0.3], list(steps_s), [step for step in steps_s if step < 15]]
    found = decode_sample(DecodePoint(3, 100, 1000), times, begin_s=1.0)
    assert found.tok_s == pytest.approx(30.0)
    assert found.step_s == pytest.approx(0.1)
    assert found.context_tokens == pytest.approx(100 + 80, abs=3)


def test_a_moment_in_which_the_machine_was_held_up_does_not_count():
    times, now_s = [], 0.0
    for number in range(100):
        now_s += 3.0 if number == 50 else 0.1
        times.append(now_s)
    assert decode_sample(DecodePoint(1, 10, 200), [times], begin_s=0.5).tok_s == pytest.approx(10.0)


def test_too_little_is_no_figure():
    with pytest.raises(OperationError, match="too little"):
        decode_sample(DecodePoint(2, 10, 200), [[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]], begin_s=0.1)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            {"max_total_num_tokens": 4096, "max_running_requests": 8, "chunked_prefill_size": 512, "version": "0.5.23"},
            (8, 4096, 512, 4096, False, "0.5.23"),
        ),
        (
            {
                "internal_states": [{"effective_max_running_requests_per_dp": 6, "max_total_num_tokens": 100}],
                "max_running_requests": None,
                "chunked_prefill_size": -1,
                "context_length": 64,
                "enable_hierarchical_cache": True,
            },
            (6, 100, 100, 64, True, None),
        ),
    ],
)
def test_what_an_engine_says_of_itself(document, expected):
    facts = facts_of(document)
    assert (
        *(facts.slot_count, facts.pool_tokens, facts.chunk_tokens, facts.context_tokens),
        *(facts.has_host_pool, facts.version),
    ) == expected


def test_an_engine_that_does_not_say_is_refused():
    with pytest.raises(OperationError):
        facts_of({"version": "0.5.23"})


def measured() -> Measured:
    decode = [
        DecodeSample(streams, context, streams / (0.02 + 0.001 * streams + 1e-6 * streams * context))
        for streams in (1, 4, 8)
        for context in (80, 300)
    ]
    prefill = [PrefillSample(size, 0.03 + 0.001 * size) for size in (16, 256, 512)]
    swaps = SwapSamples(
        d2h_bytes_s=[1e9, 3e9, 2e9], h2d_bytes_s=[4e9], bytes_per_token=46080.4, evict_s=0.01, schedule_s=0.2
    )
    copies = {"alone_bytes_s": {"d2h": 10e9, "h2d": 10e9}, "both_bytes_s": {"d2h": 5e9, "h2d": 11e9}}
    return Measured(FACTS, decode, prefill, swaps, copies)


def test_what_was_measured_is_a_valid_section_with_its_origin():
    section = PerformanceSection.model_validate(performance(measured(), MADE))
    for figures in (section.decode, section.prefill, section.d2h, section.h2d, section.tails, section.kv):
        assert figures is not None
        assert (figures.how, "2 x a CPU" in figures.source) == ("measured", True)
    assert section.made is not None
    assert section.made.at.year == 2026
    assert (section.decode.fixed_s, section.decode.row_s, section.decode.token_s) == pytest.approx((0.02, 1e-3, 1e-6))
    assert (section.prefill.fixed_s, section.prefill.token_s) == pytest.approx((0.03, 0.001))
    assert (section.d2h.bytes_s, section.d2h.both_bytes_s) == (2e9, 1e9)
    assert (section.h2d.bytes_s, section.h2d.both_bytes_s) == (4e9, 4e9)
    assert (section.tails.evict_s, section.tails.load_s, section.tails.schedule_s) == (0.01, None, 0.2)
    assert (section.kv.bytes_per_token, section.kv.pool_tokens) == (46080, 4096)
    assert max(point.tok_s for point in section.capacity.points) == pytest.approx(measured().capacity_tok_s, rel=1e-3)


def test_the_policy_expects_what_was_measured():
    priors = PerformanceSection.model_validate(performance(measured(), MADE)).priors()
    fixed_s, row_s, token_s = priors["decode_step"]
    assert 8 / (fixed_s + 8 * row_s + 8 * 80 * token_s) == pytest.approx(measured().decode[4].tok_s, rel=0.01)
    assert (priors["d2h_bytes_s"], priors["schedule_s"]) == (1e9, 0.2)


def test_steps_that_scatter_are_noticed():
    found = measured()
    assert decode_fit(found)[1] < 0.01
    found.decode[0] = DecodeSample(1, 80, 3 * found.decode[0].tok_s)
    assert decode_fit(found)[1] > 0.05


def test_without_a_host_pool_the_rest_is_written():
    found = measured()
    found.swaps, found.copies = None, None
    section = PerformanceSection.model_validate(performance(found, MADE))
    assert (section.d2h, section.tails, section.kv) == (None, None, None)
    assert section.decode is not None

"""No machine, workload, policy or tuning ends a run before its last request: all tokens come, no page is lost."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_rig import simulated, small_gpu

from tokenflow.policy.tunables import Restore, Tunables
from tokenflow.sim.performance import Link
from tokenflow.sim.policies import POLICIES, make_scheduler
from tokenflow.sim.settings import LoadOverlap
from tokenflow.sim.workload import SimRequest

links = st.builds(
    Link,
    d2h_bytes_s=st.floats(6, 11).map(lambda exponent: 10.0**exponent),  # 10 to a million tokens a second
    h2d_bytes_s=st.floats(6, 11).map(lambda exponent: 10.0**exponent),
    fixed_s=st.sampled_from([0.0, 1e-4, 0.05]),
    h2d_contention_ratio=st.sampled_from([1.0, 0.5, 0.1]),
    interference_ratio=st.sampled_from([1.0, 1.0, 1.5, 4.0]),
)
machines = st.fixed_dictionaries(
    {
        "slots": st.integers(1, 12),
        "kv": st.integers(32, 3000),
        "host": st.sampled_from([0, 1, 40, 500, 3000, 1_000_000]),
        "page_tokens": st.sampled_from([1, 1, 16, 64]),
        "load_overlap": st.sampled_from(list(LoadOverlap)),
        "step_overhead_s": st.sampled_from([0.0, 0.003]),
        "chunk_tokens": st.sampled_from([None, 16, 512]),
        "has_mixed_steps": st.booleans(),
    }
)
workloads = st.lists(
    st.builds(
        dict,
        gap_s=st.sampled_from([0.0, 0.0, 0.0, 0.01, 0.5, 20.0, 4000.0]),
        prompt_tokens=st.integers(1, 700),
        output_tokens=st.integers(1, 300),
        rate_tok_s=st.one_of(st.none(), st.floats(0.1, 300)),
        hidden_ratio=st.sampled_from([0.0, 0.0, 0.0, 0.5, 0.99]),
        leaves_s=st.one_of(st.none(), st.none(), st.floats(0, 30)),
        longer_ratio=st.sampled_from([None, None, 1.0, 4.0]),
    ),
    min_size=1,
    max_size=30,
)
tunings = st.builds(
    Tunables,
    safety_factor=st.sampled_from([1.0, 1.5, 20.0]),
    reserve_s=st.sampled_from([0.0, 0.5, 10.0]),
    surplus_s=st.sampled_from([0.0, 2.0, 60.0]),
    ttft_target_s=st.sampled_from([0.05, 1.0, 60.0]),
    starvation_bound_s=st.sampled_from([1.0, 30.0, 3600.0]),
    first_run_tokens=st.sampled_from([1, 8, 4096]),
    quantum_s=st.sampled_from([0.0, 1.0, 30.0]),
    max_swaps_per_s=st.sampled_from([0.0, 1.0, 50.0, 10_000.0]),
    min_benefit_s=st.sampled_from([0.0, 0.05, 10.0]),
    write_through=st.booleans(),
    transfer_budget_ratio=st.sampled_from([0.0, 0.8, 1.0]),
    restore=st.sampled_from(list(Restore)),
    max_unread_ratio=st.sampled_from([0.0, 0.1, 1.0]),
)


def requests_of(drawn):
    """In order of arrival."""
    now_s, requests = 0.0, []
    for one in drawn:
        now_s += one["gap_s"]
        output = one["output_tokens"]
        requests.append(
            SimRequest(
                now_s,
                one["prompt_tokens"],
                output,
                one["rate_tok_s"],
                hidden_tokens=min(int(output * one["hidden_ratio"]), output - 1),
                leaves_s=one["leaves_s"],
                max_tokens=None if one["longer_ratio"] is None else math.ceil(output * one["longer_ratio"]),
            )
        )
    return requests


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15, deadline=None)
@given(machine=machines, link=links, drawn=workloads, tunables=tunings, pause_s=st.sampled_from([0.0, 0.05]))
def test_every_run_comes_to_its_end(policy, machine, link, drawn, tunables, pause_s):
    requests = requests_of(drawn)
    own = {name: machine.pop(name) for name in ("chunk_tokens", "has_mixed_steps")}
    scheduler = make_scheduler(policy, tunables, pause_s=pause_s, **own)
    engine = simulated(requests, scheduler=scheduler, gpu=small_gpu(link=link), **machine)
    records = {record.rid: record for record in engine.clerk.records}
    assert len(records) == len(requests)
    assert engine.state.memory.is_all_free
    assert not engine.state.transfers.is_busy
    for index, request in enumerate(requests):
        record = records[f"r{index + 1:06d}"]
        if record.is_aborted:
            is_too_large = request.prompt_tokens + request.output_tokens >= engine.state.memory.kv_total_tokens
            assert is_too_large or request.leaves_s is not None
        else:
            assert record.made_tokens == request.output_tokens
            assert record.figures.token_count == request.output_tokens - request.hidden_tokens


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("page_tokens", [1, 16, 64])
def test_whoever_fills_the_pool_to_its_last_page_is_served(policy, page_tokens):
    """Alone, and behind others; its context takes every page in the end."""
    large = [SimRequest(0.0, 40, 5, 10.0), SimRequest(0.0, 192, 63, 10.0), SimRequest(0.1, 254, 1, None)]
    scheduler = make_scheduler(policy, Tunables())
    engine = simulated(large, scheduler=scheduler, slots=2, kv=256, host=1000, page_tokens=page_tokens)
    assert sorted(record.made_tokens for record in engine.clerk.records) == [1, 5, 63]

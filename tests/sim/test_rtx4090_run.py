"""A measured run as the judge: vLLM 0.19 on an RTX 4090, 300 ShareGPT requests at 10/s (LLMServingSim, MIT).

The pool of 41,408 tokens was full most of the time, up to 233 requests waited, and preemption recomputed.
"""

import json

import numpy as np
import pytest
from datasets import dataset

from tokenflow.quality.summary import combine
from tokenflow.sim.baselines.fcfs import VLLM_RULES, Fcfs
from tokenflow.sim.engine import SimEngine
from tokenflow.sim.models import load_model
from tokenflow.sim.settings import EngineSettings
from tokenflow.sim.workloads import WorkloadSpec, make_requests

MEASURED_TPOT_S, MEASURED_TTFT_S, MEASURED_TOK_S = 0.0324, 65.5, 1066.0


@pytest.fixture(scope="module")
def engine() -> SimEngine:
    trace = dataset("traces/sharegpt_llama31_300req_lengths.csv")
    requests = make_requests(WorkloadSpec(arrivals=f"trace:{trace}", input_tokens="trace", output_tokens="trace"), 1)
    model = load_model("rtx4090", "llama3-8b")
    assert model.kv_tokens(0.9) == 41_408
    ran = SimEngine(Fcfs(VLLM_RULES), model, EngineSettings(slot_count=256, kv_tokens=41_408, page_tokens=16))
    ran.run(requests)
    return ran


def test_mean_ttft_throughput_and_tpot(engine):
    figures = [record.figures for record in engine.clerk.records]
    summary = combine(figures)
    tpots_s = [
        (one.end_s - one.arrival_s - one.ttft_s) / (one.token_count - 1) for one in figures if one.token_count > 1
    ]
    assert summary.request_count == 300
    assert summary.ttft_mean_s == pytest.approx(MEASURED_TTFT_S, rel=0.10)
    assert summary.raw_tok_s == pytest.approx(MEASURED_TOK_S, rel=0.05)
    assert np.mean(tpots_s) == pytest.approx(MEASURED_TPOT_S, rel=0.05)


def test_the_ttft_of_each_request_follows_the_measured_one(engine):
    """Not only the mean: the measured order of waiting comes out, request by request."""
    with dataset("perf/llmservingsim/RTX4090/bench_requests.jsonl").open() as file:
        rows = [json.loads(line) for line in file]
    measured = [row["first_token_ts"] - row["queued_ts"] for row in rows]
    by_rid = {record.rid: record.figures.ttft_s for record in engine.clerk.records}
    simulated = [by_rid[f"r{index + 1:06d}"] for index in range(300)]
    assert np.corrcoef(measured, simulated)[0, 1] > 0.98
    assert np.median(np.abs(np.array(simulated) - measured)) < 0.05 * 65.5


def test_the_pool_was_full_and_preemption_happened_as_in_the_run(engine):
    assert engine.state.counts.forced_count > 50
    assert engine.state.counts.load_count == 0

"""A second measured run: vLLM 0.19 on an RTX PRO 6000, the same 300 requests, with memory to spare and 128 places.

Nothing was fitted to it. Here places are short and not memory, and nobody is preempted (LLMServingSim, MIT).
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


def test_ttft_throughput_and_tpot_come_out():
    trace = dataset("traces/sharegpt_llama31_300req_lengths.csv")
    with dataset("perf/llmservingsim/RTXPRO6000/bench_requests.jsonl").open() as file:
        rows = [json.loads(line) for line in file]
    requests = make_requests(WorkloadSpec(arrivals=f"trace:{trace}", input_tokens="trace", output_tokens="trace"), 1)
    model = load_model("rtxpro6000", "llama3-8b")
    engine = SimEngine(
        Fcfs(VLLM_RULES), model, EngineSettings(slot_count=128, kv_tokens=model.kv_tokens(0.9), page_tokens=16)
    )
    engine.run(requests)

    figures = [record.figures for record in engine.clerk.records]
    summary = combine(figures)
    measured_ttft_s = np.array([row["first_token_ts"] - row["queued_ts"] for row in rows])
    wall_s = max(row["last_token_ts"] for row in rows) - min(row["queued_ts"] for row in rows)
    measured_tok_s = sum(row["output_toks"] for row in rows) / wall_s
    tpots_s = [(one.end_s - one.arrival_s - one.ttft_s) / (one.token_count - 1) for one in figures]
    assert np.mean(tpots_s) == pytest.approx(0.0325, rel=0.05)
    assert summary.ttft_mean_s == pytest.approx(measured_ttft_s.mean(), rel=0.10)
    assert summary.raw_tok_s == pytest.approx(measured_tok_s, rel=0.05)
    by_rid = {record.rid: record.figures.ttft_s for record in engine.clerk.records}
    simulated = np.array([by_rid[f"r{index + 1:06d}"] for index in range(300)])
    assert np.corrcoef(measured_ttft_s, simulated)[0, 1] > 0.98
    assert engine.state.counts.pause_count == 0

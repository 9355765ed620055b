"""SGLang's own `bench_serving` and ours against the same server: the same keys, the same figures."""

import json

import pytest
from bench_serving import bench_serving, skip_where_it_cannot_run
from openai_stand_in import StandIn

TOKEN_S = 0.03
TOKENS = 30


def test_both_say_the_same(tmp_path, tfctl):
    skip_where_it_cannot_run()
    with StandIn(token_s=TOKEN_S) as server:
        other = bench_serving(server.url, tmp_path, [f"Why, {n}?" for n in range(4)], TOKENS, model="toy")
        limits = ("--goodput", "ttft:60000")
        mine = tfctl("bench", "--url", server.url, "-n", "4", "--output-tokens", f"fixed:{TOKENS}", "--json", *limits)
    assert mine.code == 0
    [run] = json.loads(mine.out)["runs"]
    assert set(other) <= set(run)
    for key in ("completed", "total_output_tokens", "max_concurrent_requests", "goodput_slos_ms", "slo_attainment"):
        assert run[key] == other[key], key
    for key in ("mean_ttft_ms", "mean_tpot_ms", "median_tpot_ms", "mean_itl_ms", "mean_e2e_latency_ms"):
        # The server's pace bounds both from below; above, only the machine's noise lies between them.
        assert min(run[key], other[key]) >= TOKEN_S * 1e3 * 0.99, key
        assert run[key] == pytest.approx(other[key], rel=0.5), key

"""SGLang's own `bench_serving` and ours against the same server: the same keys, the same figures."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from openai_stand_in import StandIn

from tokenflow.setup.model import demo_model_folder

MODEL = demo_model_folder()  # now: the tests of tfctl have a cache folder of their own
TOKEN_S = 0.03
TOKENS = 30
# `datasets` is needed by data sets of pictures alone, and is no part of the engine's pinned packages.
BENCH_SERVING = (
    "import runpy, sys, types\n"
    "from tokenflow.sglang import standins\n"
    "standins.install()\n"
    "sys.modules['datasets'] = types.SimpleNamespace(load_dataset=None)\n"
    "runpy.run_module('sglang.bench_serving', run_name='__main__')\n"
)


def theirs(url: str, folder) -> dict:
    conversations = [{"conversations": [{"content": f"Why, {n}?"}, {"content": "Because of that."}]} for n in range(4)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in conversations))
    options = {
        "--backend": "sglang-oai-chat",
        "--base-url": url,
        "--model": "toy",
        "--tokenizer": str(MODEL),
        "--dataset-name": "custom",
        "--dataset-path": str(folder / "prompts.jsonl"),
        "--sharegpt-output-len": str(TOKENS),
        "--num-prompts": "4",
        "--warmup-requests": "1",
        "--ready-check-timeout-sec": "0",
        "--output-file": str(folder / "theirs.jsonl"),
        "--goodput": "ttft:60000",
    }
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}  # the tokenizer is a folder here
    command = [sys.executable, "-c", BENCH_SERVING, *(word for pair in options.items() for word in pair)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((folder / "theirs.jsonl").read_text())


def test_both_say_the_same(tmp_path, tfctl):
    if importlib.util.find_spec("sglang") is None or not (MODEL / "config.json").exists():
        pytest.skip("needs SGLang and the demo model's tokenizer: tfctl engine install --cpu; make model")
    with StandIn(token_s=TOKEN_S) as server:
        other = theirs(server.url, tmp_path)
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

"""Runs SGLang's own `bench_serving` against a server, with one prompt a request and outputs of one length."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tokenflow.setup.model import demo_model_folder

MODEL = demo_model_folder()  # now: the tests of tfctl have a cache folder of their own
# `datasets` is needed by data sets of pictures alone, and is no part of the engine's pinned packages.
BENCH_SERVING = (
    "import runpy, sys, types\n"
    "from tokenflow.sglang import standins\n"
    "standins.install()\n"
    "sys.modules['datasets'] = types.SimpleNamespace(load_dataset=None)\n"
    "runpy.run_module('sglang.bench_serving', run_name='__main__')\n"
)


def skip_where_it_cannot_run() -> None:
    if importlib.util.find_spec("sglang") is None or not (MODEL / "config.json").exists():
        pytest.skip("needs SGLang and the demo model's tokenizer: tfctl engine install --cpu; make model")


def bench_serving(
    url: str, folder: Path, prompts: Sequence[str], tokens: int, *, model: str, backend: str = "sglang-oai-chat"
) -> dict[str, Any]:
    """Its record of one run in which all requests come at once."""
    conversations = [{"conversations": [{"content": prompt}, {"content": "Because of that."}]} for prompt in prompts]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in conversations))
    options = {
        "--backend": backend,
        "--base-url": url,
        "--model": model,
        "--tokenizer": str(MODEL),
        "--dataset-name": "custom",
        "--dataset-path": str(folder / "prompts.jsonl"),
        "--sharegpt-output-len": str(tokens),
        "--num-prompts": str(len(prompts)),
        "--warmup-requests": "1",
        "--ready-check-timeout-sec": "0",
        "--output-file": str(folder / "theirs.jsonl"),
        "--goodput": "ttft:60000",
    }
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}  # the tokenizer is a folder here
    command = [sys.executable, "-c", BENCH_SERVING, *(word for pair in options.items() for word in pair)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((folder / "theirs.jsonl").read_text().splitlines()[-1])  # each run adds its own
    assert isinstance(found, dict)
    return found

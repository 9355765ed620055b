"""The published step tables: which file is made of which, and their rows as samples."""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tokenflow.sim.models import aiconfigurator
from tokenflow.sim.models.fit import StepSample
from tokenflow.sim.models.load import hardware
from tokenflow.sim.performance import StepWork


@dataclass(frozen=True, slots=True)
class Origin:
    """A source of tables. `is_split_by_context`: the prompt tokens of its mixed steps belong to several prompts, each
    as long as the decoded contexts; otherwise they are one prompt."""

    folder: str
    source: str
    licence: str
    is_split_by_context: bool


AICONFIGURATOR = Origin(
    folder="aiconfigurator_step_tables",
    source="NVIDIA aiconfigurator-core 0.12.0: measured SGLang kernels",
    licence="Apache-2.0",
    is_split_by_context=True,
)
AICONFIGURATOR_LIVE = replace(AICONFIGURATOR, folder="")
LLMSERVINGSIM = Origin(
    folder="llmservingsim_step_tables",
    source="LLMServingSim 2 (casys-kaist, 5daddb2): layers measured with vLLM 0.19",
    licence="MIT",
    is_split_by_context=False,
)
DERIVED_A6000 = Origin(
    folder="derived_a6000",
    source="DERIVED, not measured, 15 % either way: Vidur's A40 GEMMs and LLMServingSim's RTX 4090 attention, scaled",
    licence="MIT",
    is_split_by_context=False,
)


@dataclass(frozen=True, slots=True)
class Target:
    """One file of ours: its GPU and model, and what they are called in the tables.

    `kv_limit_tokens` is about what fits on the device: steps with more do not occur and are not fitted.
    """

    gpu: str
    model: str
    origin: Origin
    table_gpu: str
    table_model: str
    kv_limit_tokens: int
    tp: int = 1
    dtype: str = "bf16"
    kv_dtype: str = "bf16"
    overhead_ratio: float = 1.0
    overhead_source: str = "none known for this GPU: kernel time alone"


_SYSTEMS = {"h200": "h200_sxm", "h100": "h100_sxm", "a100": "a100_sxm", "l40s": "l40s", "b200": "b200_sxm"}
_MODELS = {
    "llama3-8b": "llama3.1-8b",
    "llama3-70b": "llama3.1-70b",
    "qwen2.5-7b": "qwen2.5-7b",
    "qwen2.5-32b": "qwen2.5-32b",
    "qwen3-8b": "qwen3-8b",
    "qwen3-32b": "qwen3-32b",
}
_TOO_BIG = {("l40s", "qwen2.5-32b"), ("l40s", "qwen3-32b")}

_H200_SOURCE = "SGLang 0.5.6.post2, 16 closed-loop runs of Llama-3.1-8B, fp8 GEMMs, bf16 KV"
_NO_SOURCE = "none known for this GPU: kernel time alone"


def _datacenter(gpu: str, model: str) -> Target:
    ratio = hardware()["gpus"][gpu].get("sglang_overhead_ratio")
    return Target(
        gpu=gpu,
        model=model,
        origin=AICONFIGURATOR,
        table_gpu=_SYSTEMS[gpu],
        table_model=_MODELS[model],
        kv_limit_tokens=1_200_000,
        tp=4 if model == "llama3-70b" else 1,
        overhead_ratio=ratio or 1.0,
        overhead_source=_H200_SOURCE if ratio else _NO_SOURCE,
    )


TARGETS = (
    *(_datacenter(gpu, model) for gpu in _SYSTEMS for model in _MODELS if (gpu, model) not in _TOO_BIG),
    # What the measured runs on H200 were: there is no table of it, the package computes it.
    replace(
        _datacenter("h200", "llama3-8b"),
        model="llama3-8b-fp8",
        origin=AICONFIGURATOR_LIVE,
        table_model="meta-llama/Meta-Llama-3.1-8B",
        dtype="fp8",
    ),
    Target(
        gpu="rtx4090",
        model="llama3-8b",
        origin=LLMSERVINGSIM,
        table_gpu="RTX4090",
        table_model="llama3.1-8b",
        kv_limit_tokens=80_000,
        overhead_source="none needed: a measured run of vLLM 0.19 comes out without (tests/sim/test_rtx4090_run.py)",
    ),
    Target(
        gpu="rtxpro6000",
        model="llama3-8b",
        origin=LLMSERVINGSIM,
        table_gpu="RTXPRO6000",
        table_model="llama3.1-8b",
        kv_limit_tokens=600_000,
        overhead_source="none needed: a measured run of vLLM 0.19 comes out without (tests/sim/test_rtxpro6000_run.py)",
    ),
    Target(
        gpu="a6000",
        model="llama3-8b",
        origin=DERIVED_A6000,
        table_gpu="RTXA6000_derived",
        table_model="llama3.1-8b",
        kv_limit_tokens=260_000,
    ),
)


def is_at_hand(target: Target) -> bool:
    """False for what the package computes, where it is not installed."""
    return target.origin is not AICONFIGURATOR_LIVE or aiconfigurator.is_installed()


def samples_from(target: Target, folder: Path, longest_context: int) -> tuple[list[StepSample], list[StepSample]]:
    """The table's steps within the device's memory: those with contexts up to `longest_context` tokens, and those
    beyond."""
    if target.origin is AICONFIGURATOR_LIVE:
        return list(aiconfigurator.step_samples(target.table_gpu, target.table_model, gemm=target.dtype)), []
    within: list[StepSample] = []
    beyond: list[StepSample] = []
    for sample, context in _rows(target, folder / target.origin.folder):
        if sample.work.decode_kv_tokens <= target.kv_limit_tokens:
            (within if context <= longest_context else beyond).append(sample)
    return within, beyond


def _rows(target: Target, folder: Path) -> Iterator[tuple[StepSample, int]]:
    """Samples with the longest context in them."""
    for row in _table(folder / "decode_step_ms.csv", target):
        batch, context = int(row["batch"]), int(row["kv_len"])
        yield _sample(StepWork(batch, batch * context), row["step_ms"]), context
    for row in _table(folder / "prefill_ms.csv", target):
        new, prefix = int(row["new_tokens"]), int(row["prefix_tokens"])
        work = StepWork(piece_count=1, new_tokens=new, pair_count=new * (prefix + (new + 1) / 2))
        yield _sample(work, row["ms"]), max(prefix, new)
    for row in _table(folder / "mixed_step_ms.csv", target):
        batch, context, new = int(row["decode_batch"]), int(row["kv_len"]), int(row["prefill_tokens"])
        if not math.isfinite(float(row["ms"])):
            continue  # outside of what was measured
        prompt = context if target.origin.is_split_by_context else new
        pieces = max(round(new / prompt), 1)
        work = StepWork(batch, batch * context, pieces, new, new * (prompt + 1) / 2)
        yield _sample(work, row["ms"]), max(context, prompt)


def _sample(work: StepWork, milliseconds: str) -> StepSample:
    return StepSample(work, float(milliseconds) / 1e3)


def _table(path: Path, target: Target) -> list[dict[str, str]]:
    """Rows of this GPU and model. A table that the source lacks has none."""
    if not path.is_file():
        return []
    wanted = (target.table_gpu, target.table_model)
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if (row["system"], row["model"]) == wanted]

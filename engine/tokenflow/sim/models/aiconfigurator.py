"""Models that no file of ours is about: steps from NVIDIA's aiconfigurator-core, where it is installed.

It composes a step of SGLang out of kernels measured on the GPU, without one and without a network (Apache-2.0; the
extra `sim` installs it). Some hundred of its steps are fitted like the tables of the shipped files: a second or two.
"""

import json
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenflow.errors import UsageError
from tokenflow.sim.models.fit import StepSample, fit_formula
from tokenflow.sim.models.fitted import FittedModel
from tokenflow.sim.models.shape import ModelShape
from tokenflow.sim.performance import Link, StepWork

PACKAGE = "aiconfigurator_core"
SYSTEMS = {"h200": "h200_sxm", "h100": "h100_sxm", "a100": "a100_sxm", "l40s": "l40s", "b200": "b200_sxm"}

BATCHES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 512)
CONTEXTS = (16, 64, 256, 512, 1024, 2048, 4096, 8192)
# GEMM times are a saw-tooth with its steps just beyond powers of two: take both sides, and what lies between.
PREFILLS = (16, 48, 96, 128, 192, 256, 320, 448, 512, 700, 1000, 1100, 1500, 2048, 2100, 3000, 4096, 5000, 8192)
PREFIXES = (0, 512, 2048, 8192)
MIXED_PREFILLS = (100, 128, 200, 256, 400, 512, 750, 1000, 1500, 2048, 3000, 5000, 8192)
MIXED_BATCHES = (1, 20, 50, 100, 250)
MIXED_CONTEXTS = (256, 1024, 4096)
_KV_LIMIT_TOKENS = 1_200_000


def is_installed() -> bool:
    """Whether the package is there. Importing it takes seconds, so nothing here does before it must."""
    return find_spec(PACKAGE) is not None


def live_model(gpu: str, model: str, memory_bytes: float, link: Link, overhead_ratio: float) -> FittedModel:
    """`model` is a name on Hugging Face that the package knows offline, or a folder with a config.json; bf16, one GPU.

    Raises UsageError for a GPU without measured kernels and for a model that is not known or not plain.
    """
    if gpu not in SYSTEMS:
        raise UsageError(f"no measured kernels for {gpu}", hint=f"any model runs on {', '.join(SYSTEMS)}", field="gpu")
    shape = ModelShape.of_config(_config(model), model)
    samples = list(step_samples(SYSTEMS[gpu], model))
    return FittedModel(
        gpu=gpu,
        model=model,
        source=f"NVIDIA aiconfigurator-core {_version()}: measured SGLang kernels, {model}, bf16",
        formula=fit_formula(samples),
        overhead_ratio=overhead_ratio,
        memory_bytes=memory_bytes,
        weight_bytes=shape.weight_bytes,
        kv_bytes_per_token=shape.kv_bytes_per_token,
        link=link,
    )


def step_samples(system: str, model: str, *, tp: int = 1, gemm: str = "bfloat16") -> Iterator[StepSample]:
    """Steps over the grid of this module. `gemm` is the package's name for how weights are multiplied; KV is bf16."""
    logging.getLogger(PACKAGE).setLevel(logging.ERROR)  # it warns of tables that a dense model does not need
    from aiconfigurator_core.sdk.engine import EngineHandle

    try:
        handle = EngineHandle.compile(
            model, system, "sglang", tp_size=tp, gemm_quant_mode=gemm,
            kvcache_quant_mode="bfloat16", fmha_quant_mode="bfloat16",
        )  # fmt: skip
    except Exception as error:
        raise UsageError(
            f"aiconfigurator-core cannot compute {model} on {system}: {error}",
            hint="use a model with one of the shipped files, or a folder with its config.json",
            field="model",
        ) from error
    for batch in BATCHES:
        for context in CONTEXTS:
            if batch * context <= _KV_LIMIT_TOKENS:
                step_ms = handle.predict_decode_latency(batch, context, 2)
                yield StepSample(StepWork(batch, batch * context), step_ms / 1e3)
    for new in PREFILLS:
        for prefix in PREFIXES:
            step_ms = handle.predict_prefill_latency(1, new + prefix, prefix)
            yield StepSample(StepWork(0, 0.0, 1, new, new * (prefix + (new + 1) / 2)), step_ms / 1e3)
    for new in MIXED_PREFILLS:
        for batch in MIXED_BATCHES:
            for context in MIXED_CONTEXTS:
                # Its prompt tokens belong to prompts as long as the decoded contexts.
                step_ms = handle.mixed_step_latency(new, batch, context, 2, 0)
                pieces = max(round(new / context), 1)
                work = StepWork(batch, batch * context, pieces, new, new * (context + 1) / 2)
                yield StepSample(work, step_ms / 1e3)


def _config(model: str) -> dict[str, Any]:
    """The model's config.json: in its folder, or the package's own copy."""
    folder = Path(model)
    if folder.is_dir():
        path = folder / "config.json"
    else:
        spec = find_spec(PACKAGE)
        assert spec is not None
        assert spec.origin is not None
        path = Path(spec.origin).parent / "model_configs" / f"{model.replace('/', '--')}_config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        raise UsageError(
            f"aiconfigurator-core does not know {model!r}",
            hint="use a name as on Hugging Face (Qwen/Qwen3-1.7B), or a folder with a config.json",
            field="model",
        ) from None
    return config


def _version() -> str:
    from importlib.metadata import version

    return version("aiconfigurator-core")

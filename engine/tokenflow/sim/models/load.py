"""Reads the fitted files. A model may be named as its card names it: `llama3-8b`, `llama3.1-8b`, `Llama-3.1-8B`."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from tokenflow.errors import UsageError
from tokenflow.sim.models import aiconfigurator
from tokenflow.sim.models.fitted import FittedModel
from tokenflow.sim.models.formula import StepFormula
from tokenflow.sim.models.ramp import Ramp
from tokenflow.sim.performance import Link

_DATA = files("tokenflow.sim.models") / "data"
_KV_TENSORS, _KV_ELEMENT_BYTES = 2, 2  # K and V, in bf16


def known_models() -> list[tuple[str, str]]:
    """Pairs of a GPU and a model that there is a file for, sorted."""
    names = (entry.name.removesuffix(".toml") for entry in _DATA.iterdir() if entry.name.endswith(".toml"))
    return sorted((gpu, model) for gpu, _, model in (name.partition("_") for name in names))


def load_model(gpu: str, model: str) -> FittedModel:
    """A model with a slash in its name (`Qwen/Qwen3-1.7B`, a folder) is computed by aiconfigurator-core, if installed.

    Raises UsageError, with what there is, for a GPU or model without a file.
    """
    wanted = (_plain(gpu), _plain(model).replace("llama-3", "llama3").replace("llama3.1", "llama3"))
    known = known_models()
    if wanted in known:
        return _from_document(*wanted, tomllib.loads((_DATA / f"{wanted[0]}_{wanted[1]}.toml").read_text()))
    gpus = sorted({name for name, _ in known})
    if wanted[0] not in gpus:
        raise UsageError(f"no performance figures for GPU {gpu!r}", hint=f"use one of {', '.join(gpus)}", field="gpu")
    if "/" in model and aiconfigurator.is_installed():
        figures = hardware()["gpus"][wanted[0]]
        return aiconfigurator.live_model(
            wanted[0], model, figures["memory_bytes"], _link(wanted[0]), figures.get("sglang_overhead_ratio", 1.0)
        )
    there = ", ".join(name for owner, name in known if owner == wanted[0])
    hint = f"there are {there}"
    if not aiconfigurator.is_installed():
        hint += "; pip install 'tokenflow-serving[sim]' adds others by their names on Hugging Face"
    raise UsageError(f"no figures for {model!r} on {wanted[0]}", hint=hint, field="model")


@cache
def hardware() -> dict[str, Any]:
    """`gpus` and `models` of hardware.toml."""
    return tomllib.loads((files("tokenflow.sim.models") / "hardware.toml").read_text())


def kv_bytes_per_token(model: str) -> int:
    """Of all layers and heads, whatever the number of GPUs."""
    shape = hardware()["models"][model]
    return int(_KV_TENSORS * shape["layers"] * shape["kv_heads"] * shape["head_dim"] * _KV_ELEMENT_BYTES)


def _source(document: dict[str, Any]) -> str:
    """One line that says what the figures are: tables, dtypes, GPUs, and what is put upon kernel times."""
    parts = [document["source"], f"{document['dtype']} GEMMs and {document['kv_dtype']} KV"]
    if document["tp"] > 1:
        parts.append(f"{document['tp']} GPUs")
    if document["overhead_ratio"] != 1.0:
        parts.append(f"x {document['overhead_ratio']} for the engine")
    return ", ".join(parts)


def _link(gpu: str) -> Link:
    figures = hardware()["gpus"][gpu]
    return Link(
        d2h_bytes_s=figures["d2h_bytes_s"],
        h2d_bytes_s=figures["h2d_bytes_s"],
        h2d_contention_ratio=figures["h2d_contention_ratio"],
    )


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def _from_document(gpu: str, model: str, document: dict[str, Any]) -> FittedModel:
    tp = document["tp"]
    return FittedModel(
        gpu=gpu,
        model=model,
        source=_source(document),
        formula=formula_of(document["formula"]),
        overhead_ratio=document["overhead_ratio"],
        memory_bytes=hardware()["gpus"][gpu]["memory_bytes"],
        weight_bytes=hardware()["models"][model]["weight_bytes"] / tp,
        kv_bytes_per_token=kv_bytes_per_token(model) / tp,
        link=_link(gpu),
        gpu_count=tp,
    )


def formula_of(table: dict[str, Any]) -> StepFormula:
    """The `[formula]` of a file."""

    def ramp(name: str) -> Ramp:
        return Ramp(tuple(table[f"{name}_knots"]), tuple(table[f"{name}_slopes_s"]))

    return StepFormula(
        fixed_s=table["fixed_s"],
        prefill_fixed_s=table["prefill_fixed_s"],
        tokens_s=ramp("token"),
        sequences_s=ramp("sequence"),
        kv_s=ramp("kv"),
        mixed_kv_s=table["mixed_kv_s"],
        pair_s=table["pair_s"],
        least_piece_tokens=table["least_piece_tokens"],
    )

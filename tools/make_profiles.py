"""Writes the built-in profiles of GPUs from the simulator's fitted performance models.

    python tools/make_profiles.py [FOLDER]        FOLDER: profiles/ of this clone, unless given

The step formulas of `tokenflow.sim.models` are piecewise; the policy begins with a plane through them, fitted here by
relative least squares over what the profile's engine can run. A GPU without tables of a model is scaled from one with:
the file says so.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from tokenflow.measure.plane import fit_plane
from tokenflow.sim.models.load import hardware, load_model
from tokenflow.sim.performance import StepWork

ATTRIBUTION = {
    "aiconfigurator": "NVIDIA aiconfigurator-core 0.12.0, tables of measured SGLang kernels (Apache-2.0)",
    "llmservingsim": "LLMServingSim (KAIST), measured layers of vLLM 0.19 (MIT)",
    "a6000": "A40 and RTX 4090 tables scaled by bandwidth and FLOPs ratios (Vidur, LLMServingSim; MIT), expect 15 %",
}
# Pinned memory, who measured it, and h2d while d2h runs (None: nobody has measured it).
LINKS: dict[str, tuple[str, str]] = {
    "h200": ("assumed", "taken over from H100: the same PCIe Gen5 x16 link"),
    "h100": ("derived", "NVIDIA's nvbandwidth sample output (55.6 GB/s, GPU not named) and its issue 24 (52.8 GB/s)"),
    "a100": ("derived", "measured by others: ZaidQureshi/bam issue 54, NVIDIA/nvbandwidth issue 53"),
    "l40s": ("assumed", "taken over from other PCIe Gen4 x16 boards"),
    "a6000": ("assumed", "taken over from other PCIe Gen4 x16 boards"),
    "rtx4090": ("derived", "measured by others: NVIDIA/nvbandwidth issue 15 (mean of eight boards)"),
}
TITLES = {
    "h200": "NVIDIA H200 SXM",
    "h100": "NVIDIA H100 SXM 80 GB",
    "a100": "NVIDIA A100 SXM 80 GB",
    "l40s": "NVIDIA L40S",
    "a6000": "NVIDIA RTX A6000",
    "rtx4090": "NVIDIA RTX 4090",
}
MODELS = {
    "llama3-8b": ("Llama-3.1-8B-Instruct", 131_072),
    "qwen2.5-7b": ("Qwen2.5-7B-Instruct", 32_768),
    "qwen2.5-32b": ("Qwen2.5-32B-Instruct", 32_768),
}
SCALED_FROM = {"a6000": "l40s", "rtx4090": "l40s"}  # by what the other model takes there against llama3-8b
MEM_FRACTION = 0.88
CONTEXTS = (128, 256, 512, 1024, 2048, 4096)
PREFILLS = (16, 64, 256, 512, 1024, 2048, 4096)
LONGEST_CONTEXT = 32_768
MODEL_FOLDER = "/srv/models"


@dataclass(frozen=True, slots=True)
class Plan:
    """One profile to write."""

    gpu: str
    model: str
    slots: int  # more streams than this no longer make more tokens worth their latency, or do not fit
    chunk_tokens: int

    @property
    def name(self) -> str:
        return f"{self.gpu}-{self.model}"


PLANS = (
    *(Plan("h200", model, slots, 8192) for model, slots in (("llama3-8b", 256), ("qwen2.5-7b", 256))),
    Plan("h200", "qwen2.5-32b", 128, 8192),
    *(Plan("h100", model, slots, 8192) for model, slots in (("llama3-8b", 256), ("qwen2.5-7b", 256))),
    Plan("h100", "qwen2.5-32b", 48, 4096),
    *(Plan("a100", model, slots, 4096) for model, slots in (("llama3-8b", 192), ("qwen2.5-7b", 192))),
    Plan("a100", "qwen2.5-32b", 48, 2048),
    *(Plan("l40s", model, slots, 2048) for model, slots in (("llama3-8b", 96), ("qwen2.5-7b", 128))),
    *(Plan("a6000", model, slots, 2048) for model, slots in (("llama3-8b", 96), ("qwen2.5-7b", 128))),
    *(Plan("rtx4090", model, slots, 2048) for model, slots in (("llama3-8b", 64), ("qwen2.5-7b", 96))),
)


class Steps:
    """Times of one GPU and model, and where they come from."""

    def __init__(self, gpu: str, model: str) -> None:
        self.gpu, self.model = gpu, model
        try:
            self._model, self._ratio = load_model(gpu, model), None
        except Exception:  # noqa: BLE001 - a tool: any reason is the same one, no table
            other = SCALED_FROM[gpu]
            self._model = load_model(gpu, "llama3-8b")
            self._ratio = (load_model(other, model), load_model(other, "llama3-8b"), other)

    def step_s(self, work: StepWork) -> float:
        own_s = self._model.step_s(work)
        if self._ratio is None:
            return own_s
        target, reference, _ = self._ratio
        return own_s * target.step_s(work) / reference.step_s(work)

    @property
    def source(self) -> str:
        family = "a6000" if self.gpu == "a6000" else "llmservingsim" if self.gpu == "rtx4090" else "aiconfigurator"
        text = f"fitted to {ATTRIBUTION[family]}"
        if self._ratio is not None:
            text += (
                f"; tables of Llama-3.1-8B, scaled by Qwen2.5-7B over Llama-3.1-8B on {TITLES[self._ratio[2]]} "
                f"({ATTRIBUTION['aiconfigurator']})"
            )
        if self._model.overhead_ratio != 1.0:
            text += f"; times {self._model.overhead_ratio:g}, SGLang's step over its kernels in 16 measured runs"
        return text


def kv_pool_tokens(gpu: str, model: str) -> tuple[int, int]:
    """(bytes of one token, tokens that fit): as for the one measured pool, by the fitted model's own rule."""
    shape = hardware()["models"][model]
    token_bytes = 2 * shape["layers"] * shape["kv_heads"] * shape["head_dim"] * 2
    known = load_model(gpu, "llama3-8b")
    reserved = (
        known.memory_bytes * MEM_FRACTION
        - known.weight_bytes
        - known.kv_tokens(MEM_FRACTION) * known.kv_bytes_per_token
    )
    room = known.memory_bytes * MEM_FRACTION - shape["weight_bytes"] - reserved
    return token_bytes, int(room // token_bytes) // 16 * 16


def fit_decode(steps: Steps, slots: int, pool_tokens: int) -> tuple[list[float], float]:
    batches = sorted({1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, slots})
    pairs = [(b, b * c) for b in batches for c in CONTEXTS if b <= slots and b * c <= pool_tokens]
    times_s = [steps.step_s(StepWork(decode_batch=batch, decode_kv_tokens=float(kv))) for batch, kv in pairs]
    return fit_plane([[1.0, batch, kv] for batch, kv in pairs], times_s)


def fit_prefill(steps: Steps, chunk_tokens: int) -> tuple[list[float], float]:
    sizes = [n for n in PREFILLS if n <= chunk_tokens]
    times_s = [steps.step_s(StepWork(piece_count=1, new_tokens=n, pair_count=n * (n + 1) / 2)) for n in sizes]
    return fit_plane([[1.0, n] for n in sizes], times_s)


def capacity_points(steps: Steps, slots: int, pool_tokens: int) -> list[tuple[int, int, float]]:
    found = []
    for context in (512, 2048):
        batch = min(slots, pool_tokens // context)
        step_s = steps.step_s(StepWork(decode_batch=batch, decode_kv_tokens=float(batch * context)))
        found.append((batch, context, batch / step_s))
    return found


def number(value: float) -> str:
    """Four digits are more than these figures are good for."""
    return f"{value:.4g}" if value < 1e6 else f"{value:.3g}".replace("e+", "e")


def render(plan: Plan) -> str:
    title, (repository, native_context) = TITLES[plan.gpu], MODELS[plan.model]
    steps = Steps(plan.gpu, plan.model)
    token_bytes, pool_tokens = kv_pool_tokens(plan.gpu, plan.model)
    (fixed_s, row_s, token_s), decode_error = fit_decode(steps, plan.slots, pool_tokens)
    (prefill_fixed_s, prefill_token_s), prefill_error = fit_prefill(steps, plan.chunk_tokens)
    link = hardware()["gpus"][plan.gpu]
    how, link_source = LINKS[plan.gpu]
    contention = link["h2d_contention_ratio"]
    host_gb = pool_tokens * token_bytes * 1.2 / 1e9
    context = min(native_context, LONGEST_CONTEXT, pool_tokens)
    lines = [
        "# Written by tools/make_profiles.py. No value here was measured on your machine: measure it with",
        f"# `tfctl profile measure --profile {plan.name}`.",
        f'name = "{plan.name}"',
        f'description = "{repository} in bf16 on one {title}: {plan.slots} slots, KV pool of about {pool_tokens:,} '
        f'tokens, {host_gb:.0f} GB of host memory for paused streams"',
        "",
        "[model]",
        f'path = "{MODEL_FOLDER}/{repository}" # yours: tfctl profile create NAME --from {plan.name} --model FOLDER',
        f'served_name = "{repository}"',
        "",
        "[engine]",
        'device = "cuda"',
        'host = "127.0.0.1"',
        "port = 30000",
        "args = [",
        '  "--dtype", "bfloat16",',
        f"  # Share of the device for weights and KV; {token_bytes:,} bytes of KV a token.",
        f'  "--mem-fraction-static", "{MEM_FRACTION}",',
        "  # No longer than the pool, so that a request that could never run is refused at once.",
        f'  "--context-length", "{context}",',
        f'  "--max-running-requests", "{plan.slots}",',
        "  # A prefill holds up every running stream while it lasts.",
        f'  "--chunked-prefill-size", "{plan.chunk_tokens}",',
        "  # The KV of paused streams goes to host memory. Not under 1: a host pool that is smaller than the device's",
        "  # fills with second copies (SGLang issue 33862).",
        '  "--enable-hierarchical-cache",',
        '  "--hicache-ratio", "1.2",',
        '  "--hicache-write-policy", "write_through",',
        '  "--sleep-on-idle",',
        "]",
        "",
        "[tunables]",
        'mode = "observe" # what enforcing would do: tfctl events; then: tfctl mode enforce',
        # The default suits a few dozen slots.
        f"max_swaps_per_s = {float(max(2 * plan.slots, 50))} # a whole batch may turn over in half a second",
        "",
        "[classes.reading]",
        "rate_tok_s = 6.0",
        "",
        "[classes.listening]",
        "rate_tok_s = 3.3",
        "",
        "[classes.agent]",
        "rate_tok_s = 30.0",
        "",
        "[classes.batch]",
        "",
        "# What the policy begins with; it measures for itself from the first step on.",
        "[performance.decode]",
        'how = "derived"',
        f'source = "{steps.source}"',
        f"fixed_s = {number(fixed_s)}",
        f"row_s = {number(row_s)}",
        f"token_s = {number(token_s)}",
        f"error_ratio = {decode_error:.3f} # of this plane against the tables' formula",
        "",
        "[performance.prefill]",
        'how = "derived"',
        f'source = "{steps.source}"',
        f"fixed_s = {number(prefill_fixed_s)}",
        f"token_s = {number(prefill_token_s)}",
        f"error_ratio = {prefill_error:.3f}",
    ]
    for name, key in (("h2d", "h2d_bytes_s"), ("d2h", "d2h_bytes_s")):
        lines += ["", f"[performance.{name}]", f'how = "{how}"', f'source = "{link_source}"']
        lines.append(f"bytes_s = {number(link[key])}")
        if name == "h2d" and contention < 1.0:
            lines.append(f"both_bytes_s = {number(link[key] * contention)} # PCIe Gen4: while d2h runs")
    lines += ["", "[performance.kv]", 'how = "derived"']
    lines.append(
        'source = "the model\'s shape; the pool by memory, weights and what vLLM 0.19 kept beside them on an RTX 4090"'
    )
    lines += [f"bytes_per_token = {token_bytes}", f"pool_tokens = {pool_tokens}"]
    lines += ["", "[performance.capacity]", 'how = "derived"', f'source = "{steps.source}"']
    for streams, tokens, tok_s in capacity_points(steps, plan.slots, pool_tokens):
        lines += ["", "[[performance.capacity.points]]", f"streams = {streams}", f"context_tokens = {tokens}"]
        lines.append(f"tok_s = {round(tok_s)}")
    return "\n".join(lines) + "\n"


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "profiles"
    for plan in PLANS:
        (folder / f"{plan.name}.toml").write_text(render(plan), encoding="utf-8")
        print(folder / f"{plan.name}.toml")


if __name__ == "__main__":
    main()

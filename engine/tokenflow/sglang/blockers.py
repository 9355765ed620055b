"""Engine options with which decisions cannot be carried out. Observing works with all of them."""

from typing import Any


def find_blockers(scheduler: Any) -> list[str]:
    """The options that rule `enforce` out, in the words of SGLang's command line; empty if none does."""
    from sglang.srt.runtime_context import get_disagg, get_parallel, get_server_args, get_spec

    parallel = get_parallel()
    found = []
    if parallel.tp_size * parallel.dp_size > 1 and get_server_args().nnodes > 1:
        found.append(f"--nnodes {get_server_args().nnodes}")
    if parallel.attn_dp_enabled:
        found.append("--enable-dp-attention")
    if parallel.attn_cp_size > 1:
        found.append(f"--attn-cp-size {parallel.attn_cp_size}")
    if parallel.pp_size > 1:
        found.append(f"--pp-size {parallel.pp_size}")
    if get_spec().speculative_algorithm is not None:
        found.append(f"--speculative-algorithm {get_spec().speculative_algorithm}")
    if get_disagg().disaggregation_mode not in (None, "null"):
        found.append(f"--disaggregation-mode {get_disagg().disaggregation_mode}")
    tree = scheduler.tree_cache
    if getattr(tree, "disable", False) or not tree.supports_prefix_sharing():
        found.append("--disable-radix-cache")
    elif not hasattr(tree, "tree_core"):
        found.append("--radix-cache-backend")
    if tree.supports_mamba():
        found.append("a model with mamba layers")
    if tree.supports_swa():
        found.append("a model with sliding-window layers")
    if scheduler.enable_priority_preemption:
        found.append("--enable-priority-scheduling without --disable-priority-preemption")
    if scheduler.enable_hisparse:
        found.append("--enable-hisparse")
    if scheduler.dllm_config is not None:
        found.append("a diffusion model")
    return found

"""Stand-in for sgl_kernel, SGLang's compiled kernels: the package index has them for CUDA only.

No `torch.ops.sgl_kernel` operator is registered, so SGLang finds no AMX support and takes the torch-native branch of
every layer. Two things remain: the `*_cpu` names it imports at module level, and the one it calls, which is
written here in torch.
"""

from typing import TYPE_CHECKING

from tokenflow.sglang.standins.placeholder import StandIn, refuse

if TYPE_CHECKING:
    import torch


def assign_req_to_token_pool_cpu(
    req_pool_indices: "torch.Tensor",
    req_to_token: "torch.Tensor",
    start_offset: "torch.Tensor",
    end_offset: "torch.Tensor",
    out_cache_loc: "torch.Tensor",
    _pool_len: int,
) -> None:
    """Writes each request's new KV slots into its row of the request table, from its start to its end position.

    `out_cache_loc` holds the slots of all requests one after the other, in the order of `req_pool_indices`.
    """
    taken = 0
    rows = zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True)
    for row, start, end in rows:
        slots = out_cache_loc[taken : taken + end - start]
        req_to_token[row, start:end] = slots.to(req_to_token.dtype)
        taken += end - start


def _fallback(module: str, name: str) -> object:
    if not name.endswith("_cpu"):
        raise AttributeError(name)  # SGLang catches the ImportError and does without
    return refuse(f"{module}.{name}")


STAND_IN = StandIn(
    package="sgl_kernel",
    modules={
        "sgl_kernel": {
            "__version__": "0.0.0",
            "assign_req_to_token_pool_cpu": assign_req_to_token_pool_cpu,
        }
    },
    fallback=_fallback,
)

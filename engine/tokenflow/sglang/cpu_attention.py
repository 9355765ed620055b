"""A quicker prefill for SGLang's torch-native attention on the CPU device, for prompts whose beginning is cached.

SGLang 0.5.23's own loop (`layers/attention/torch_native_backend.py`) pads the new tokens' queries to the whole
sequence and computes attention for all of it. Behind a long cached prefix that is nearly all of the work: every chunk
of a long prompt, and every stream that comes back with its KV, paid for its whole context again. Here only the new
tokens are queries. The sums are the same; the last bits may differ as they do between a prefill and a decode step.
"""

import functools
from collections.abc import Callable
from typing import Any

_APPLIED_MARK = "_tokenflow_cpu_attention"


def attend_new_tokens(
    query: Any,
    output: Any,
    k_cache: Any,
    v_cache: Any,
    req_to_token: Any,
    req_pool_indices: Any,
    seq_lens: Any,
    extend_prefix_lens: Any,
    scaling: float | None,
    enable_gqa: bool,
) -> Any:
    """Causal self-attention of each request's new tokens over its whole sequence, one request after the other.

    `query` and `output` are [new tokens of all requests, heads, head size], the caches [slots, heads, head size].
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    start = 0
    lengths = zip(seq_lens.tolist(), extend_prefix_lens.tolist(), req_pool_indices.tolist(), strict=True)
    for sequence_tokens, prefix_tokens, row in lengths:
        new_tokens = sequence_tokens - prefix_tokens
        end = start + new_tokens
        slots = req_to_token[row, :sequence_tokens]
        key = k_cache[slots].movedim(0, 1).to(query.dtype)
        value = v_cache[slots].movedim(0, 1).to(query.dtype)
        mask = None
        if prefix_tokens and new_tokens > 1:  # `is_causal` aligns the corners of a square: not what is meant here
            positions = torch.arange(sequence_tokens, device=query.device)
            mask = positions[None, :] <= positions[prefix_tokens:, None]
        made = scaled_dot_product_attention(
            query[start:end].movedim(0, 1).unsqueeze(0),
            key.unsqueeze(0),
            value.unsqueeze(0),
            attn_mask=mask,
            enable_gqa=enable_gqa,
            scale=scaling,
            is_causal=not prefix_tokens and new_tokens > 1,
        )
        output[start:end] = made.squeeze(0).movedim(0, 1)
        start = end
    return output


def for_new_tokens_only(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `_run_sdpa_forward_extend`; encoders, cross attention and sliding windows go the original way."""

    @functools.wraps(original)
    def extend(
        self: Any,
        query: Any,
        output: Any,
        k_cache: Any,
        v_cache: Any,
        req_to_token: Any,
        req_pool_indices: Any,
        seq_lens: Any,
        extend_prefix_lens: Any,
        extend_seq_lens: Any,
        encoder_lens: Any = None,
        scaling: float | None = None,
        enable_gqa: bool = False,
        causal: bool = False,
        is_cross_attn: bool = False,
        sliding_window_size: int | None = None,
    ) -> Any:
        has_window = sliding_window_size is not None and sliding_window_size > -1
        if encoder_lens is not None or is_cross_attn or not causal or has_window:
            return original(
                self, query, output, k_cache, v_cache, req_to_token, req_pool_indices, seq_lens, extend_prefix_lens,
                extend_seq_lens, encoder_lens, scaling, enable_gqa, causal, is_cross_attn, sliding_window_size,
            )  # fmt: skip
        return attend_new_tokens(
            query, output, k_cache, v_cache, req_to_token, req_pool_indices, seq_lens, extend_prefix_lens,
            scaling, enable_gqa,
        )  # fmt: skip

    return extend


def apply() -> None:
    """Puts it in place in this process if it has no CUDA device. Calling it again is harmless."""
    import torch

    if torch.cuda.is_available():
        return
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    if hasattr(TorchNativeAttnBackend, _APPLIED_MARK):
        return
    wrapped = for_new_tokens_only(TorchNativeAttnBackend._run_sdpa_forward_extend)
    TorchNativeAttnBackend._run_sdpa_forward_extend = wrapped
    setattr(TorchNativeAttnBackend, _APPLIED_MARK, True)

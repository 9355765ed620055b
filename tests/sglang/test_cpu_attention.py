"""The quicker prefill computes plain causal attention, and stays out of everything else's way."""

import sys
import types

import pytest

torch = pytest.importorskip("torch")

from tokenflow.sglang import cpu_attention  # noqa: E402

HEADS, KV_HEADS, SIZE, SLOTS = 6, 2, 16, 400
SCALE = 0.25


def batch(prefixes, news, seed=0):
    """Requests with so many cached and new tokens each, their KV scattered over the pool."""
    draw = torch.Generator().manual_seed(seed)
    lengths = [prefix + new for prefix, new in zip(prefixes, news, strict=True)]
    rows = torch.zeros(len(lengths) + 1, max(lengths), dtype=torch.int64)
    places = torch.randperm(SLOTS, generator=draw)
    begin = 0
    for row, length in enumerate(lengths):
        rows[row + 1, :length] = places[begin : begin + length]
        begin += length
    query = torch.randn(sum(news), HEADS, SIZE, generator=draw)
    key, value = (torch.randn(SLOTS, KV_HEADS, SIZE, generator=draw) for _ in range(2))
    indices = torch.arange(1, len(lengths) + 1)
    return query, key, value, rows, indices, torch.tensor(lengths), torch.tensor(prefixes), torch.tensor(news)


def run(function, parts, **options):
    query, key, value, rows, indices, lengths, prefixes, news = parts
    output = torch.empty_like(query)
    function(
        object(), query, output, key, value, rows, indices, lengths, prefixes, news,
        scaling=SCALE, enable_gqa=True, causal=True, **options,
    )  # fmt: skip
    return output


def expected(parts):
    """Token by token, by the definition."""
    query, key, value, rows, indices, lengths, prefixes, _ = parts
    made, position = [], 0
    for row, length, prefix in zip(indices.tolist(), lengths.tolist(), prefixes.tolist(), strict=True):
        for seen in range(prefix + 1, length + 1):
            slots = rows[row, :seen]
            keys = key[slots].repeat_interleave(HEADS // KV_HEADS, dim=1)
            values = value[slots].repeat_interleave(HEADS // KV_HEADS, dim=1)
            weights = torch.softmax(torch.einsum("hd,thd->ht", query[position], keys) * SCALE, dim=-1)
            made.append(torch.einsum("ht,thd->hd", weights, values))
            position += 1
    return torch.stack(made)


def never(*_arguments):
    raise AssertionError("plain self-attention is not left to the original")


@pytest.mark.parametrize(
    ("prefixes", "news"),
    [([0], [1]), ([0], [17]), ([31], [1]), ([31], [9]), ([0, 40, 7, 0], [12, 1, 20, 1]), ([16, 16], [16, 16])],
)
def test_it_is_causal_attention_over_the_whole_sequence(prefixes, news):
    parts = batch(prefixes, news)
    torch.testing.assert_close(run(cpu_attention.for_new_tokens_only(never), parts), expected(parts))


@pytest.mark.parametrize("options", [{"is_cross_attn": True}, {"sliding_window_size": 8}, {"encoder_lens": [3]}])
def test_what_is_not_plain_self_attention_goes_the_original_way(options):
    seen = []
    run(cpu_attention.for_new_tokens_only(lambda *arguments: seen.append(arguments)), batch([4], [4]), **options)
    assert len(seen) == 1
    assert len(seen[0]) == 16


def test_applied_once_and_only_without_cuda(monkeypatch):
    class Backend:
        def _run_sdpa_forward_extend(self):
            raise AssertionError("not called here")

    module = types.ModuleType("torch_native_backend")
    module.TorchNativeAttnBackend = Backend
    monkeypatch.setitem(sys.modules, "sglang.srt.layers.attention.torch_native_backend", module)
    before = Backend._run_sdpa_forward_extend
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    cpu_attention.apply()
    assert Backend._run_sdpa_forward_extend is before
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    cpu_attention.apply()
    once = Backend._run_sdpa_forward_extend
    cpu_attention.apply()
    assert once is Backend._run_sdpa_forward_extend is not before

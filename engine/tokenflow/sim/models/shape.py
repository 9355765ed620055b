"""How large a model is: its weights and the KV of a token, out of what its config.json says."""

from dataclasses import dataclass
from typing import Any

from tokenflow.errors import UsageError

_BF16_BYTES = 2


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A dense transformer with grouped-query attention and a gated MLP (Llama, Qwen2, Qwen3, Mistral)."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    ties_embeddings: bool

    @classmethod
    def of_config(cls, config: dict[str, Any], name: str) -> "ModelShape":
        """Raises UsageError for a model of another kind: its weights are counted otherwise."""
        is_other = any(key in config for key in ("num_experts", "num_local_experts", "n_routed_experts", "q_lora_rank"))
        try:
            if is_other:
                raise KeyError("experts")
            heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
            return cls(
                layers=int(config["num_hidden_layers"]),
                hidden=hidden,
                heads=heads,
                kv_heads=int(config.get("num_key_value_heads", heads)),
                head_dim=int(config.get("head_dim") or hidden // heads),
                intermediate=int(config["intermediate_size"]),
                vocabulary=int(config["vocab_size"]),
                ties_embeddings=bool(config.get("tie_word_embeddings", False)),
            )
        except KeyError:
            raise UsageError(
                f"{name} is not a dense transformer, and its memory is not known here",
                hint="use a dense model, such as Qwen/Qwen3-8B",
                field="model",
            ) from None

    @property
    def weight_bytes(self) -> int:
        """In bf16, biases left out."""
        attention = self.hidden * (self.heads + 2 * self.kv_heads) * self.head_dim
        attention += self.heads * self.head_dim * self.hidden
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        embeddings = self.vocabulary * self.hidden * (1 if self.ties_embeddings else 2)
        return _BF16_BYTES * (self.layers * layer + self.hidden + embeddings)

    @property
    def kv_bytes_per_token(self) -> int:
        """K and V of all layers, in bf16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * _BF16_BYTES

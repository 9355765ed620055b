"""`python -m tokenflow.setup.gguf_conversion FILE.gguf FOLDER`: a Hugging Face folder from a GGUF file.

A process of its own, because it loads torch and transformers, which the caller must not. The weights are
de-quantized to bfloat16; the engine's `--dtype` converts from there.
"""

import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """0 when the folder is written. Says on stdout what it does, a line each."""
    if len(arguments) != 2:
        print("usage: python -m tokenflow.setup.gguf_conversion FILE.gguf FOLDER", file=sys.stderr)
        return 2
    convert(Path(arguments[0]), Path(arguments[1]))
    return 0


def convert(source: Path, folder: Path) -> None:
    """Writes model, tokenizer and configuration of `source` into `folder`."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is in the file: nothing may be looked up
    _tell("loading torch and transformers")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    _tell("reading the tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
    _tell("reading and de-quantizing the weights")
    model = AutoModelForCausalLM.from_pretrained(
        str(source.parent),
        gguf_file=source.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    _tell("writing the model folder")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

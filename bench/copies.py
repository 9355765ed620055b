"""Copies between host and device, alone and together, and what they cost a decode step that runs meanwhile.

    python bench/copies.py [--seconds 2] [--megabytes 64] [--output FILE.jsonl]

With a CUDA device the host memory is pinned and each direction has a stream of its own. Without one the copies go from
host to host, in threads, and are called so: they show that the script runs, and nothing about a GPU.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from tokenflow.measure.copies import Copier, together

LAYERS, WIDTH, BATCH = 24, 4096, 16  # of the stand-in for a decode step: one product with a weight matrix a layer
CPU_LAYERS, CPU_WIDTH = 4, 1024


class DecodeStep:
    """As memory-bound as decoding is: every weight is read once for a small batch."""

    def __init__(self) -> None:
        self._has_gpu = torch.cuda.is_available()
        layers, width = (LAYERS, WIDTH) if self._has_gpu else (CPU_LAYERS, CPU_WIDTH)
        kind = {"dtype": torch.bfloat16, "device": "cuda"} if self._has_gpu else {"dtype": torch.float32}
        self._weights = [torch.zeros(width, width, **kind) for _ in range(layers)]  # type: ignore[arg-type]
        self._batch = torch.zeros(BATCH, width, **kind)  # type: ignore[arg-type]

    def times_s(self, seconds: float) -> list[float]:
        times_s: list[float] = []
        begin_s = time.perf_counter()
        while time.perf_counter() - begin_s < seconds:
            step_begin_s = time.perf_counter()
            hidden = self._batch
            for weight in self._weights:
                hidden = hidden @ weight
            if self._has_gpu:
                torch.cuda.current_stream().synchronize()
            times_s.append(time.perf_counter() - step_begin_s)
        return times_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure")
    parser.add_argument("--megabytes", type=int, default=64, help="of one copy")
    parser.add_argument("--output", type=Path, help="a JSON line a figure")
    options = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    names = ("h2d", "d2h") if has_gpu else ("host_to_host_1", "host_to_host_2")
    copiers = [Copier(name, options.megabytes << 20, to_device=name == names[0]) for name in names]
    lines: list[dict[str, object]] = []

    def tell(**figures: object) -> None:
        lines.append({"part": "copies", "device": torch.cuda.get_device_name() if has_gpu else "cpu", **figures})
        print(json.dumps(lines[-1]), flush=True)

    for copier in copiers:
        tell(what="alone", bytes_s={copier.name: copier.run(options.seconds)})
    tell(what="together", bytes_s=together(copiers, options.seconds))
    step = DecodeStep()
    step.times_s(0.2)  # warm
    alone_s = statistics.median(step.times_s(options.seconds))
    tell(what="step alone", step_s=alone_s)
    for group in (copiers[:1], copiers[1:], copiers):
        times_s: list[float] = []

        def work(times_s: list[float] = times_s) -> None:
            times_s.extend(step.times_s(options.seconds))

        speeds = together(group, options.seconds, work)
        step_s = statistics.median(times_s)
        tell(what="step with copies", step_s=step_s, ratio=step_s / alone_s, bytes_s=speeds)
    if options.output:
        options.output.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()

"""Γ as `tfctl profile measure` writes it against what `tfctl bench` reaches on the same engine, in paired runs.

    python bench/capacity.py [--rounds 5] [--window 2] [--output FILE.jsonl] [-- ENGINE ARGS]

Starts daemon and engine (profile demo-cpu, a free port) in a place of their own and ends them. Each round measures, and
then sends one burst that fills all slots with answers of a fixed length; Γ is that of all slots, between the measured
contexts. The order of the two changes from round to round. Exit code 1 where the median ratio is more than 0.15 off 1.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

PROFILE = "demo-cpu"
PROMPT_TOKENS, ANSWER_TOKENS = 32, 256
MEAN_CONTEXT_TOKENS = PROMPT_TOKENS + ANSWER_TOKENS / 2
WITHIN_RATIO = 0.15  # of 1, the median of all rounds
START_LIMIT_S, STEP_LIMIT_S = 300.0, 300.0


class Place:
    """tfctl in folders of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("TOKENFLOW_")}
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            (folder / name).mkdir(mode=0o700)
            self._environment[name] = str(folder / name)

    def tfctl(self, *arguments: str, limit_s: float = STEP_LIMIT_S) -> str:
        command = [sys.executable, "-m", "tfctl.main", *arguments]
        began_s = time.monotonic()
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=limit_s)
        if done.returncode != 0:
            raise SystemExit(f"tfctl {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        print(f"tfctl {' '.join(arguments[:2])}: {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True)
        return done.stdout

    def measured(self, window_s: float) -> dict[str, Any]:
        """`[performance]` of a profile that is measured now."""
        path = self.folder / "measured.toml"
        options = ("--profile", PROFILE, "--as", path.stem, "--output", str(path), "--quick", "--window", str(window_s))
        self.tfctl("profile", "measure", *options)
        found: dict[str, Any] = tomllib.loads(path.read_text())["performance"]
        return found

    def bench_tok_s(self, slots: int, seed: int) -> float:
        """Tokens per second over the whole burst, prefill and all."""
        options = ("--requests", str(slots), "--rates", "none", "--ignore-eos", "--seed", str(seed))
        lengths = ("--input-tokens", f"fixed:{PROMPT_TOKENS}", "--output-tokens", f"fixed:{ANSWER_TOKENS}")
        document = json.loads(self.tfctl("bench", *options, *lengths, "--json"))
        return float(document["runs"][0]["output_throughput"])


def gamma_tok_s(performance: dict[str, Any]) -> tuple[int, float]:
    """All slots, and Γ at the context that the burst has on the average: between two measured contexts a step's time
    is taken to grow evenly, outside of them it is that of the nearest."""
    points = performance["capacity"]["points"]
    slots = max(point["streams"] for point in points)
    full = sorted((point["context_tokens"], slots / point["tok_s"]) for point in points if point["streams"] == slots)
    step_s = float(np.interp(MEAN_CONTEXT_TOKENS, [context for context, _ in full], [seconds for _, seconds in full]))
    return slots, slots / step_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window", type=float, default=2.0, help="seconds for each measured figure")
    parser.add_argument("--output", type=Path, help="a JSON line a round, appended")
    parser.add_argument("engine_args", nargs="*", help="more options of SGLang")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a time limit from outside ends the engine too
    ratios = []
    with tempfile.TemporaryDirectory(prefix="tfb-") as name:
        place = Place(Path(name))
        place.tfctl("start", PROFILE, "--", "--port", "0", *options.engine_args, limit_s=START_LIMIT_S)
        try:
            slots = 0
            for round_ in range(options.rounds):
                reached = place.bench_tok_s(slots, round_) if round_ % 2 else None
                slots, gamma = gamma_tok_s(place.measured(options.window))
                reached = place.bench_tok_s(slots, round_) if reached is None else reached
                line = {"round": round_, "gamma_tok_s": gamma, "bench_tok_s": reached, "ratio": gamma / reached}
                ratios.append(gamma / reached)
                print(json.dumps(line), flush=True)
                if options.output:
                    with options.output.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
        finally:
            place.tfctl("stop", "--daemon")
    median = statistics.median(ratios)
    is_within = abs(median - 1.0) <= WITHIN_RATIO
    print(json.dumps({"rounds": len(ratios), "median_ratio": median, "ratios": ratios, "is_within": is_within}))
    if not is_within:
        sys.exit(1)


if __name__ == "__main__":
    main()

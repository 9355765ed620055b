"""What one run of `tfctl status` costs: `python bench/cli.py [--runs N] [--json]`.

Each run is a process of its own, as an operator starts it. `python -c pass` is measured in between, run by run, so
that the ratio holds on a busy machine too. The daemon is the real one, without an engine, at a socket of its own.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

LIMIT_S = 0.3  # what an operator waits for without noticing
_DAEMON_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """Wall times of one command, in seconds; `ratio` is against `python -c pass`."""

    name: str
    median_s: float
    p90_s: float
    bare_python_s: float
    ratio: float
    run_count: int


def wall_s(command: Sequence[str], exit_codes: Sequence[int], environment: dict[str, str]) -> float:
    """Seconds from the start to the end of the process. Raises RuntimeError if it ends otherwise than expected."""
    started_s = time.perf_counter()
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    elapsed_s = time.perf_counter() - started_s
    if done.returncode not in exit_codes:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.decode()}")
    return elapsed_s


def measure(
    name: str, command: Sequence[str], exit_codes: Sequence[int], run_count: int, environment: dict[str, str]
) -> Measurement:
    """Runs the command and a bare Python in turn; the first pair warms the caches and does not count."""
    bare = [sys.executable, "-c", "pass"]
    times_s: list[float] = []
    bare_s: list[float] = []
    for _ in range(run_count + 1):
        bare_s.append(wall_s(bare, (0,), environment))
        times_s.append(wall_s(command, exit_codes, environment))
    median_s, bare_median_s = statistics.median(times_s[1:]), statistics.median(bare_s[1:])
    p90_s = statistics.quantiles(times_s[1:], n=10)[-1] if run_count > 1 else median_s
    return Measurement(name, median_s, p90_s, bare_median_s, median_s / bare_median_s, run_count)


@contextmanager
def daemon(socket: Path, environment: dict[str, str]) -> Iterator[None]:
    """A real tokenflowd without an engine."""
    command = [sys.executable, "-m", "tokenflowd.main", "--socket", str(socket)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            until_s = time.monotonic() + _DAEMON_LIMIT_S
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > until_s:
                    raise RuntimeError("the daemon did not start")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(_DAEMON_LIMIT_S)


def main() -> None:
    parser = argparse.ArgumentParser(description="Wall time of tfctl, one process a run.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tfctl = [sys.executable, "-m", "tfctl.main"]
    with tempfile.TemporaryDirectory(prefix="tf-") as folder:
        socket = Path(folder) / "control.sock"
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder}
        status = [*tfctl, "--socket", str(socket), "status"]
        results = [measure("tfctl status, no daemon", status, (3,), options.runs, environment)]
        with daemon(socket, environment):
            results.append(measure("tfctl status, daemon", status, (3,), options.runs, environment))
            results.append(measure("tfctl status --json, daemon", [*status, "--json"], (3,), options.runs, environment))
            ps = [*tfctl, "--socket", str(socket), "ps"]
            results.append(measure("tfctl ps, daemon", ps, (0,), options.runs, environment))
        results.append(measure("tfctl --help", [*tfctl, "--help"], (0,), options.runs, environment))
    if options.json:
        print(json.dumps({"limit_s": LIMIT_S, "results": [asdict(result) for result in results]}))
    else:
        print_table(results)


def print_table(results: Sequence[Measurement]) -> None:
    """One line a command."""
    print(f"{'command':<30} {'median':>8} {'p90':>8} {'python':>8} {'ratio':>6}   limit {LIMIT_S:g} s")
    for result in results:
        verdict = "within" if result.median_s <= LIMIT_S else "OVER"
        print(
            f"{result.name:<30} {result.median_s * 1000:>5.0f} ms {result.p90_s * 1000:>5.0f} ms "
            f"{result.bare_python_s * 1000:>5.0f} ms {result.ratio:>5.1f}x   {verdict}"
        )


if __name__ == "__main__":
    main()

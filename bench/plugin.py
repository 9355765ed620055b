"""What the plugin costs the scheduler in observe mode, on the real engine with 64 running requests.

The plugin adds up the time of its own hooks on the scheduler's thread; that sum over the steps is its cost per
iteration. Beside it stand paired windows of the same run with the mode switched between `observe` and `off`, whose
ratio of step times shows the same thing the noisy way.

    python bench/plugin.py [--requests 64] [--pairs 5] [--window 6]
"""

import argparse
import asyncio
import json
import statistics
import threading
import time
from dataclasses import asdict, dataclass

from engine_process import EngineProcess, running_engine

from tokenflow.link import SetMode
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import Workload, plan_streams
from tokenflow.loadgen.run import LoadRun
from tokenflow.policy.states import Mode


@dataclass(frozen=True)
class Window:
    """What one stretch of steady decoding measured."""

    mode: str
    step_count: int
    step_s: float
    plugin_s_per_step: float


def measure(engine: EngineProcess, mode: Mode, window_s: float) -> Window:
    """Switches the mode, then counts steps and the plugin's own time for `window_s` seconds."""
    engine.command(SetMode(mode=mode))
    engine.telemetry()
    first = engine.telemetry()
    deadline_s = time.monotonic() + window_s
    last = first
    while time.monotonic() < deadline_s:
        last = engine.telemetry()
    steps = last.step_count - first.step_count
    assert steps > 0, "the engine made no step in the window"
    return Window(
        mode=mode.value,
        step_count=steps,
        step_s=(last.sent_s - first.sent_s) / steps,
        plugin_s_per_step=(last.plugin_spent_s - first.plugin_spent_s) / steps,
    )


def start_load(
    engine: EngineProcess, request_count: int
) -> tuple[LoadRun, threading.Thread, asyncio.AbstractEventLoop]:
    """Streams that outlast the measurement, in a thread of their own."""
    workload = Workload(
        request_count=request_count,
        arrivals=f"burst:{request_count}",
        rates="6",
        output_tokens="fixed:2000",
        seed=1,
    )
    endpoint = Endpoint(url=engine.url, model="demo", extra_body={"ignore_eos": True})
    run = LoadRun(endpoint, plan_streams(workload))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(run.execute()), daemon=True)
    thread.start()
    return run, thread, loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=6, help="an even number")
    parser.add_argument("--window", type=float, default=6.0, help="seconds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tokens = str(options.requests * 2200)
    args = ("--max-running-requests", str(options.requests), "--max-total-tokens", tokens, "--sleep-on-idle")
    with running_engine(*args) as engine:
        run, thread, loop = start_load(engine, options.requests)
        while engine.telemetry().capacity.running_count < options.requests:
            pass
        # The context grows meanwhile and with it the step: each pair turns the order round.
        orders = [(Mode.OFF, Mode.OBSERVE), (Mode.OBSERVE, Mode.OFF)]
        windows = [measure(engine, mode, options.window) for n in range(options.pairs) for mode in orders[n % 2]]
        loop.call_soon_threadsafe(run.cancel)
        thread.join(30)
    report(windows, options.requests, options.json)


def report(windows: list[Window], request_count: int, as_json: bool) -> None:
    observing = [window for window in windows if window.mode == Mode.OBSERVE]
    cost_s = statistics.median(window.plugin_s_per_step for window in observing)
    share = statistics.median(window.plugin_s_per_step / window.step_s for window in observing)
    pairs = [{window.mode: window.step_s for window in windows[n : n + 2]} for n in range(0, len(windows), 2)]
    ratios = [pair[Mode.OBSERVE] / pair[Mode.OFF] for pair in pairs]
    if as_json:
        print(json.dumps({"request_count": request_count, "windows": [asdict(window) for window in windows]}))
        return
    print(f"{request_count} running requests, {sum(window.step_count for window in windows)} steps measured")
    print(f"step time                        {statistics.median(w.step_s for w in observing) * 1e3:8.1f} ms (median)")
    print(f"plugin, time in its hooks        {cost_s * 1e6:8.1f} us a step (median of {len(observing)} windows)")
    print(f"share of a step                  {share * 100:8.3f} %")
    print(f"step time, observe over off      {statistics.median(ratios):8.3f} (median of {len(ratios)} pairs;", end=" ")
    print(f"{min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()

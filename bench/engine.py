"""Stock SGLang against TokenFlow on the real engine: same model, same limits, same seeded workloads, in one run.

Every round sends the same workload to each scheduler, the order turning from round to round, with SGLang's cache
emptied before each; readers are real. `mixed` (not among the default ones) is TokenFlow with SGLang's
`--enable-mixed-chunk`. Two shortages: slots, or KV tokens, for about a third of 24 streams. Demand is
given as a share of what stock scheduling makes of the same burst, prefill included, just before.

    python bench/engine.py                                # everything: about an hour on two quiet cores
    python bench/engine.py --quick                        # stock and tokenflow, one round each
    python bench/engine.py --scenario slots-burst --demand 0.65 --systems stock,tokenflow --rounds 5
    python bench/engine.py --table FILE.jsonl             # the table of runs that were written with --output FILE.jsonl
"""

import argparse
import contextlib
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine_process import EngineProcess, running_engine
from engine_runs import OUTPUT_TOKENS, SHORTAGES, SYSTEMS, Load, System, measure
from engine_table import table


@dataclass(frozen=True)
class Scenario:
    """A shortage and a way to arrive, at some demands, for some schedulers."""

    name: str
    shortage: str
    request_count: int
    is_burst: bool
    demands: tuple[float, ...]
    systems: tuple[str, ...]


ALL = ("stock", "tokenflow", "paper", "guide", "priority")
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("slots-burst", "slots", 24, True, (0.65, 0.95), ALL),
        Scenario("kv-burst", "kv", 24, True, (0.65, 0.95), ("stock", "tokenflow")),
        Scenario("slots-poisson", "slots", 36, False, (0.9,), ("stock", "tokenflow")),
    )
}


BURST = Load("warm", 24, "burst:24", 2.0)


def load_of(scenario: Scenario, demand_ratio: float, capacity_tok_s: float) -> Load:
    """A burst whose readers together ask for that share of capacity, or arrivals whose tokens do."""
    if scenario.is_burst:
        rate_tok_s = demand_ratio * capacity_tok_s / scenario.request_count
        return Load(scenario.name, scenario.request_count, f"burst:{scenario.request_count}", round(rate_tok_s, 3))
    per_s = demand_ratio * capacity_tok_s / OUTPUT_TOKENS
    # Readers at half of what one slot makes: streams finish ahead of them, and what they ask for is what is made.
    return Load(scenario.name, scenario.request_count, f"poisson:{per_s:.4f}", round(capacity_tok_s / 16, 3))


def warm(engine: EngineProcess, system: System) -> None:
    """A burst in `observe`, in which the engine learns what it can do."""
    measure(engine, System(system.name, {"mode": "observe"}, has_priorities=system.has_priorities), BURST, seed=0)


def capacity_of(engine: EngineProcess) -> float:
    """What stock scheduling makes of the burst, in tok/s. Not the engine's own Γ, which is that of decode steps alone:
    near capacity the few per cent that prefill takes decide whether readers can be kept supplied at all."""
    return statistics.fmean(measure(engine, SYSTEMS["stock"], BURST, seed=seed)["raw_tok_s"] for seed in (1, 2))


def run(scenario: Scenario, options: argparse.Namespace) -> list[dict[str, object]]:
    """All rounds of a scenario; every run is written as soon as it is over."""
    names = options.systems or scenario.systems
    systems = [SYSTEMS[name] for name in names]
    lines: list[dict[str, object]] = []
    with contextlib.ExitStack() as stack:
        engines: dict[tuple[str, ...], EngineProcess] = {}
        for system in systems:
            if system.engine_args not in engines:
                args = (*SHORTAGES[scenario.shortage], "--dtype", options.dtype, *system.engine_args)
                engine = engines[system.engine_args] = stack.enter_context(running_engine(*args))
                warm(engine, system)
        if () not in engines:
            raise SystemExit("what demand is a share of is measured on the engine that is stock's too: add stock")
        capacity_tok_s = capacity_of(engines[()])
        for demand_ratio in options.demand or scenario.demands:
            load = load_of(scenario, demand_ratio, capacity_tok_s)
            for number in range(options.rounds):
                turned = systems[number % len(systems) :] + systems[: number % len(systems)]
                for system in turned:
                    figures = measure(engines[system.engine_args], system, load, seed=1 + number % options.seeds)
                    where = {"scenario": scenario.name, "demand_ratio": demand_ratio, "round": number}
                    what = {"system": system.name, "rate_tok_s": load.rate_tok_s, "capacity_tok_s": capacity_tok_s}
                    lines.append({**where, **what, **figures})
                    report(lines[-1], options.output)
    return lines


def report(line: dict[str, object], output: Path | None) -> None:
    what = f"{line['scenario']} {line['demand_ratio']} round {line['round']} {line['system']:9}"
    first, raw = f"TTFT P99 {line['ttft_p99_s']:6.2f} s", f"raw {line['raw_tok_s']:5.1f}"
    print(
        f"{what} {first}  {raw}  effective {line['effective_tok_s']:5.1f}  stalled {line['stall_ratio']:.4f}",
        flush=True,
    )
    if output:
        with output.open("a") as file:
            file.write(json.dumps(line) + "\n")


def names(text: str) -> list[str]:
    found = text.split(",")
    unknown = [name for name in found if name not in SYSTEMS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no scheduler {unknown[0]!r}; there are {', '.join(SYSTEMS)}")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), action="append")
    parser.add_argument("--demand", type=float, action="append", help="of capacity; may be given more than once")
    parser.add_argument("--systems", type=names, help=f"comma-separated, of {', '.join(SYSTEMS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dtype", default="bfloat16", help="of the model; float32 is slower by half on most machines")
    parser.add_argument("--output", type=Path, help="a JSON line per run")
    parser.add_argument("--table", type=Path, help="print the table of what was written before, and run nothing")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    if options.table:
        print(table(json.loads(line) for line in options.table.read_text().splitlines()))
        return
    if options.quick:
        options.rounds, options.systems = 1, ["stock", "tokenflow"]
    lines = [line for name in options.scenario or SCENARIOS for line in run(SCENARIOS[name], options)]
    print(table(lines))


if __name__ == "__main__":
    main()

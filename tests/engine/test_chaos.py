"""A short version of bench/chaos.py: one of each kind of death, while streams run. The order is fixed."""

import importlib.util
import sys
from pathlib import Path

ACTIONS = ("kill_daemon", "tune", "tune_and_kill_daemon", "kill_client", "kill_scheduler", "kill_daemon")
BENCH = Path(__file__).parents[2] / "bench"
# The limit of the truth is wide here: a busy machine takes seconds to start a process. bench/chaos.py holds it to 5 s.
TRUTH_S = 20.0


def load_chaos():
    spec = importlib.util.spec_from_file_location("chaos", BENCH / "chaos.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(BENCH))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCH))
    return module


def test_deaths_under_load_lose_nothing_and_leave_nothing(own_engine):
    chaos = load_chaos().Chaos(own_engine, seed=1, truth_s=TRUTH_S, tokens=20)
    try:
        chaos.begin()
        for name in ACTIONS:
            chaos.run(name)
        chaos.end()
    finally:
        chaos.abandon()
    assert chaos.problems == []
    assert sum(chaos.done.values()) == len(ACTIONS)

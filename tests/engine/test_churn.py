"""Many short requests of every kind on the real engine while modes change: each gets its answer, and nothing leaks.

A few hundred by default. CHURN_REQUESTS=1000 asks for more, CHURN_SEED for others.
"""

import asyncio
import json
import os
import threading
from collections import Counter

import churn
import pytest
from churn import Got, Kind, Outcome
from engine_faults import assert_clean_log, log_on_failure, strict_checks
from engine_streams import flush_cache, wait_until_idle
from probe_control import ProbeControl, assert_nothing_is_held

REQUESTS = int(os.environ.get("CHURN_REQUESTS", "400"))
SEED = int(os.environ.get("CHURN_SEED", "1"))
ARRIVALS_PER_S = 14.0
ABORTS_A_STATE = max(2, REQUESTS // 100)
STATES = ("waiting", "prefilling", "running", "preempted", "loading")
# Narrow as well as shallow: most of what the two-layer model computes is the product with its vocabulary.
TINY = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
}
ENGINE = (
    *("--load-format", "dummy", "--json-model-override-args", json.dumps(TINY)),
    *("--max-running-requests", "6", "--chunked-prefill-size", "128"),
    *("--max-total-tokens", str(churn.CONTEXT_TOKENS), "--context-length", str(churn.CONTEXT_TOKENS)),
)


class ModeSwitcher(threading.Thread):
    """Goes round the modes until told to stop; most of the time is spent enforcing."""

    def __init__(self, rig) -> None:
        super().__init__()
        self._rig = rig
        self._end = threading.Event()
        self.switched: Counter[str] = Counter()
        self.failures: list[str] = []

    def run(self) -> None:
        while not self._end.is_set():
            for mode, stay_s in (("enforce", 6.0), ("observe", 1.0), ("enforce", 4.0), ("off", 1.0)):
                answer = self._rig.tfctl("mode", mode)
                if answer.returncode != 0:
                    self.failures.append(f"{mode}: {answer.stderr}")
                self.switched[mode] += 1
                if self._end.wait(stay_s):
                    return

    def stop(self) -> None:
        self._end.set()
        self.join(60)


@pytest.mark.timeout(1500)
def test_every_request_gets_its_answer_or_one_clear_error(own_engine):
    probe = ProbeControl(own_engine.folder, own_engine.environment)
    strict_checks(own_engine.environment)
    own_engine.start(*ENGINE)
    with log_on_failure(own_engine):
        results = churn_under_changing_modes(own_engine, probe)
        check(own_engine, probe, results)
    flush_cache(own_engine)
    own_engine.stop()
    own_engine.assert_nothing_left()


def churn_under_changing_modes(rig, probe: ProbeControl) -> list[Got]:
    planned = churn.cases(SEED, REQUESTS, rig.model, ARRIVALS_PER_S)
    assert {case.kind for case in planned} == set(Kind)
    probe.order(aborts=dict.fromkeys(STATES, ABORTS_A_STATE))
    switcher = ModeSwitcher(rig)
    switcher.start()
    try:
        results = asyncio.run(churn.run_all(rig.url, planned))
    finally:
        switcher.stop()
    assert switcher.failures == []
    print(f"\n{REQUESTS} requests, seed {SEED}: {dict(sorted(churn.summary(results).items()))}")
    print(f"modes {dict(switcher.switched)}")
    return results


def check(rig, probe: ProbeControl, results: list[Got]) -> None:
    wrong = [f"{got.case} {got.rid}: {got.detail}" for got in results if got.outcome is Outcome.WRONG]
    assert wrong == []
    answer = probe.answer()
    print(f"aborted in {answer['aborted']}")
    assert all(answer["aborted"].get(state, 0) > 0 for state in STATES), answer["aborted"]
    aborted = [got.rid for got in results if got.outcome is Outcome.ABORTED]
    assert len(aborted) <= len(answer["aborted_rids"])

    wait_until_idle(rig)
    status = rig.status()
    print(f"preemptions {status['quality']['preemption_total']}, transfers {status['transfers']}")
    assert_nothing_is_held(probe.report())
    assert status["engine"]["state"] == "serving"
    assert status["policy"]["fault_count"] == 0
    assert status["quality"]["preemption_total"] > 0
    assert status["transfers"]["d2h"]["total_bytes"] > 0
    assert status["transfers"]["h2d"]["total_bytes"] > 0
    assert_clean_log(rig)

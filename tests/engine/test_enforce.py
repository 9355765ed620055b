"""Enforcing on the real engine: streams are paused and come back, nothing is lost, and the text stays what it was."""

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request

import pytest
from engine_streams import FAST, alone, burst, endpoint, flush_cache, texts_of, wait_until_idle

from tokenflow.loadgen.run import LoadRun

SMALL = (*FAST, "--max-running-requests", "3")
SHORT_OF_KV = (*FAST, "--max-running-requests", "12", "--max-total-tokens", "700", "--context-length", "700")
# Without overlap the step in flight is never there to be drained; mixed batches prefill and decode in one.
NO_OVERLAP = (*SHORT_OF_KV, "--disable-overlap-schedule", "--page-size", "8")
MIXED = (*SHORT_OF_KV, "--enable-mixed-chunk", "--chunked-prefill-size", "16")


@pytest.mark.parametrize(
    "shortage", [SMALL, SHORT_OF_KV, NO_OVERLAP, MIXED], ids=["slots", "kv", "no overlap", "mixed"]
)
def test_paused_streams_come_back_with_the_text_they_would_have_had(own_engine, shortage):
    own_engine.start(*shortage)
    plans = burst(seed=11)
    assert own_engine.tfctl("mode", "off").returncode == 0
    expected = [texts_of(own_engine, [alone(plan)])[0] for plan in plans]
    flush_cache(own_engine)

    enforced = own_engine.tfctl("mode", "enforce")
    assert enforced.returncode == 0, enforced.stderr
    assert own_engine.status()["policy"]["mode"] == "enforce"
    assert texts_of(own_engine, plans) == expected
    wait_until_idle(own_engine)

    status = own_engine.status()
    assert status["quality"]["preemption_total"] > 0
    assert status["policy"]["fault_count"] == 0
    assert status["transfers"]["d2h"]["total_bytes"] > 0
    assert status["capacity"]["capacity_tok_s"] > 0
    if shortage is not SMALL:
        assert status["transfers"]["h2d"]["total_bytes"] > 0, "nothing was loaded back from the host pool"
    # SGLang checks its own memory when it is idle, and ends the engine if a page is missing.
    flush_cache(own_engine)
    assert own_engine.status()["engine"]["state"] == "serving"
    own_engine.stop()
    own_engine.assert_nothing_left()


def test_switching_modes_and_leaving_clients_lose_nobody_else(own_engine):
    own_engine.start(*SMALL)
    assert own_engine.tfctl("mode", "enforce").returncode == 0
    run = LoadRun(endpoint(own_engine), burst(seed=12, count=12, tokens=80))
    thread = threading.Thread(target=lambda: asyncio.run(run.execute()))
    thread.start()
    leavers = [leave_early(own_engine, after_tokens) for after_tokens in (0, 1, 5, 20)]
    for mode in ("observe", "enforce", "off", "enforce"):
        time.sleep(1.5)
        assert own_engine.tfctl("mode", mode).returncode == 0
    thread.join(240)
    assert not thread.is_alive()
    for leaver in leavers:
        leaver.join(60)
    result = run.result()
    assert [stream.error for stream in result.streams] == [None] * 12
    assert all(stream.token_count == 80 for stream in result.streams)
    wait_until_idle(own_engine)
    assert own_engine.status()["policy"]["fault_count"] == 0
    flush_cache(own_engine)
    own_engine.stop()
    own_engine.assert_nothing_left()


def leave_early(rig, after_tokens: int) -> threading.Thread:
    """A client that closes its connection in the middle of its stream."""
    body = json.dumps(
        {"model": rig.model, "prompt": "One two three", "max_tokens": 200, "stream": True, "ignore_eos": True}
    )
    headers = {"Content-Type": "application/json", "X-TokenFlow-Rate": "2"}
    request = urllib.request.Request(f"{rig.url}/v1/completions", body.encode(), headers)

    def read_some() -> None:
        with urllib.request.urlopen(request, timeout=120) as answer:
            for _ in range(after_tokens):
                answer.readline()

    thread = threading.Thread(target=read_some)
    thread.start()
    return thread

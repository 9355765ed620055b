"""How KV comes back on the real engine: loaded from the host pool, or computed again where that is wanted."""

import asyncio
import threading

import pytest
from engine_streams import FAST, alone, burst, endpoint, flush_cache, texts_of, wait_until_idle

from tokenflow.loadgen.run import LoadRun

TOKENS = 160


class LoneStream:
    """One stream, read by a thread of its own."""

    def __init__(self, rig, plan) -> None:
        self.run = LoadRun(endpoint(rig), [plan], keep_text=True)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run.execute()))
        self.thread.start()

    def text(self) -> str:
        self.thread.join(120)
        assert not self.thread.is_alive()
        (stream,) = self.run.result().streams
        assert stream.error is None
        assert stream.token_count == TOKENS
        return str(stream.text)


def paused_and_resumed(rig, plan) -> tuple[str, dict, dict]:
    """(its text, the event of its resume, its row while it was paused and had left the device)"""
    stream = LoneStream(rig, plan)
    rid = running_rid(rig)
    rig.row_when(rid, lambda row: row["generated_tokens"] > 20)
    assert rig.tfctl("pause", rid).returncode == 0
    row = rig.row_when(rid, lambda row: row["state"] == "preempted" and row["kv_device_tokens"] == 0)
    assert rig.tfctl("resume", rid).returncode == 0
    text = stream.text()
    events = [event for event in rig.json("events", "-n", "50")["events"] if event["rid"] == rid]
    (resumed,) = [event for event in events if event["kind"] == "resumed"]
    assert [event["kind"] for event in events].count("preempted") == 1
    return text, resumed, row


def running_rid(rig) -> str:
    while True:
        rids = [rid for rid, row in rig.rows().items() if row["state"] == "running"]
        if rids:
            return rids[0]


def loaded_bytes(rig) -> int:
    return int(rig.status()["transfers"]["h2d"]["total_bytes"])


@pytest.mark.parametrize("page_tokens", [1, 16])
def test_what_left_the_device_is_loaded_or_recomputed_as_told(own_engine, page_tokens):
    own_engine.start(*FAST, "--page-size", str(page_tokens))
    plan = alone(burst(seed=41, count=1, tokens=TOKENS)[0])
    assert own_engine.tfctl("mode", "off").returncode == 0
    expected = texts_of(own_engine, [plan])[0]
    flush_cache(own_engine)
    assert own_engine.tfctl("mode", "enforce").returncode == 0

    text, resumed, row = paused_and_resumed(own_engine, plan)
    assert text == expected
    terms = resumed["terms"]
    assert terms["how"] == "load"
    assert terms["load_tokens"] == row["kv_host_tokens"] == terms["cached_tokens"]
    assert terms["recomputed_tokens"] < page_tokens
    assert loaded_bytes(own_engine) == terms["load_bytes"] > 0

    wait_until_idle(own_engine)
    flush_cache(own_engine)
    before_bytes = loaded_bytes(own_engine)
    assert own_engine.tfctl("tune", "restore=recompute").returncode == 0
    text, resumed, row = paused_and_resumed(own_engine, plan)
    assert text == expected
    assert row["kv_host_tokens"] > 20, "there was a copy that could have been loaded"
    assert resumed["terms"]["how"] == "recompute"
    assert resumed["terms"]["recomputed_tokens"] > 20
    assert resumed["terms"]["load_tokens"] == 0
    assert loaded_bytes(own_engine) == before_bytes
    assert own_engine.status()["policy"]["fault_count"] == 0

    wait_until_idle(own_engine)
    flush_cache(own_engine)  # refused unless everything was given back
    own_engine.stop()
    own_engine.assert_nothing_left()

"""The operator's hand on the real engine: one request held and let go, values tuned, and the events that tell of it."""

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from engine_rig import Rig
from engine_streams import FAST, flush_cache, live, wait_until_idle

from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.run import LoadRun

PROMPT = "Tell me of the sea, the wind and the ships that sail on it, from the first to the last."
PAGE_TOKENS = 1


@pytest.fixture(scope="module")
def own_engine(_engines) -> Iterator[Rig]:
    """One engine for all of this file: a single slot, so that a second stream waits."""
    with _engines.of_a_module(*FAST, "--max-running-requests", "1") as rig:
        assert rig.tfctl("mode", "enforce").returncode == 0
        yield rig


class Stream(threading.Thread):
    """One stream of the load generator, with its text."""

    def __init__(self, rig: Rig, max_tokens: int, rate_tok_s: float = 10.0) -> None:
        super().__init__()
        endpoint = Endpoint(url=rig.url, model=rig.model, extra_body={"ignore_eos": True, "temperature": 0})
        plan = StreamPlan(index=0, arrival_s=0.0, prompt=PROMPT, rate_tok_s=rate_tok_s, max_tokens=max_tokens)
        self._run = LoadRun(endpoint, [plan], keep_text=True)
        self.start()

    def run(self) -> None:
        asyncio.run(self._run.execute())

    def text(self, token_count: int) -> str:
        self.join(120)
        assert not self.is_alive()
        (stream,) = self._run.result().streams
        assert (stream.error, stream.token_count) == (None, token_count)
        return str(stream.text)


def events(rig: Rig, rid: str) -> dict[str, dict]:
    """The last event of each kind about a request."""
    return {event["kind"]: event for event in rig.json("events", "-n", "500")["events"] if event["rid"] == rid}


def tuned(rig: Rig) -> dict:
    return {row["key"]: row["value"] for row in rig.json("tune")["tunables"]}


def test_a_lone_stream_that_was_paused_says_what_it_would_have_said(own_engine):
    assert own_engine.tfctl("tune", "restore=load").returncode == 0
    expected = Stream(own_engine, 800).text(800)
    wait_until_idle(own_engine)
    flush_cache(own_engine)

    stream = Stream(own_engine, 800)
    rid = live(own_engine, "running", tokens=20)
    held = own_engine.tfctl("pause", rid)
    assert held.returncode == 0, held.stderr
    row = own_engine.row_when(rid, lambda row: row["state"] == "preempted")
    assert row["reason"] == "preempted_operator"
    own_engine.row_when(rid, lambda row: row["kv_device_tokens"] == 0)
    time.sleep(2.0)
    later = own_engine.rows()[rid]
    assert (later["state"], later["generated_tokens"]) == ("preempted", row["generated_tokens"])
    assert own_engine.status()["engine"]["state"] == "serving"
    assert stream.is_alive()
    assert own_engine.tfctl("resume", rid).returncode == 0
    assert stream.text(800) == expected

    told = events(own_engine, rid)
    assert told["held"]["who"].startswith("uid=")
    assert told["preempted"]["reason"] == "preempted_operator"
    assert told["preempted"]["terms"]["kv_tokens"] >= row["generated_tokens"]
    assert told["preempted"]["terms"]["evict_bytes"] > 0
    assert told["released"]["terms"]["released_bytes"] > 0
    resumed = told["resumed"]["terms"]
    assert resumed["recomputed_tokens"] <= PAGE_TOKENS
    assert (resumed["how"], resumed["load_bytes"] > 0) == ("load", True)
    assert resumed["paused_s"] >= 2.0
    assert own_engine.status()["policy"]["fault_count"] == 0
    wait_until_idle(own_engine)
    flush_cache(own_engine)


def test_values_are_tuned_all_or_none_and_read_back(own_engine):
    before, revision = tuned(own_engine), own_engine.json("tune")["revision"]
    done = own_engine.tfctl("tune", "quantum_s=2", "variant=paper")
    assert (done.returncode, done.stdout) == (0, f"variant = paper\nquantum_s = 2\nrevision {revision + 1}\n")
    assert own_engine.status()["policy"]["variant"] == "paper"
    assert Stream(own_engine, 20).text(20)

    wrong = own_engine.tfctl("tune", "quantum_s=99", "nosuch=1", "reserve_s=1")
    assert wrong.returncode == 2
    assert all(word in wrong.stderr for word in ("quantum_s", "nosuch"))
    stale = own_engine.tfctl("tune", "--if-revision", str(revision), "quantum_s=3")
    assert stale.returncode == 1
    assert "revision" in stale.stderr
    assert tuned(own_engine) == {**before, "quantum_s": 2.0, "variant": "paper"}
    back = own_engine.tfctl("tune", "--if-revision", str(revision + 1), "quantum_s=1", "variant=tokenflow")
    assert back.returncode == 0, back.stderr
    assert tuned(own_engine) == before


def test_a_waiting_request_that_is_held_is_not_started(own_engine):
    assert own_engine.tfctl("tune", "max_swaps_per_s=0").returncode == 0
    first = Stream(own_engine, 800)
    running = live(own_engine, "running")
    second = Stream(own_engine, 30)
    rid = live(own_engine, "waiting", but=(running,))
    assert own_engine.tfctl("pause", rid).returncode == 0
    first.text(800)
    own_engine.row_when(running, lambda row: row["state"] == "finished")
    time.sleep(1.0)
    row = own_engine.rows()[rid]
    assert (row["state"], row["reason"], row["generated_tokens"]) == ("waiting", "preempted_operator", 0)
    assert own_engine.tfctl("resume", rid).returncode == 0
    assert second.text(30)
    assert own_engine.tfctl("tune", "max_swaps_per_s=50").returncode == 0


@pytest.mark.parametrize("state", ["running", "waiting"])
def test_a_client_that_leaves_while_it_is_held_leaves_nothing_behind(own_engine, state):
    assert own_engine.tfctl("tune", "max_swaps_per_s=0").returncode == 0
    others: tuple[str, ...] = ()
    first = None
    if state == "waiting":
        first = Stream(own_engine, 800)
        others = (live(own_engine, "running"),)
    url = urlsplit(own_engine.url)
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=60)
    body = {"model": own_engine.model, "prompt": PROMPT, "max_tokens": 2000, "stream": True, "ignore_eos": True}
    headers = {"Content-Type": "application/json", "X-TokenFlow-Rate": "5"}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    rid = live(own_engine, state, but=others)
    assert own_engine.tfctl("pause", rid).returncode == 0
    own_engine.row_when(rid, lambda row: row["reason"] == "preempted_operator")
    connection.close()
    own_engine.row_when(rid, lambda row: row["state"] == "aborted")
    if first is not None:
        first.text(800)
    refused = own_engine.tfctl("resume", rid)
    assert refused.returncode == 1
    wait_until_idle(own_engine)
    flush_cache(own_engine)
    status = own_engine.status()
    assert (status["engine"]["state"], status["policy"]["fault_count"]) == ("serving", 0)
    assert own_engine.tfctl("tune", "max_swaps_per_s=50").returncode == 0


def test_who_cannot_be_held_is_told_why(own_engine):
    unknown = own_engine.json("pause", "nosuch")
    assert unknown["error"]["code"] == "not_found"
    stream = Stream(own_engine, 800)
    rid = live(own_engine, "running")
    assert own_engine.tfctl("resume", rid).returncode == 1
    assert own_engine.tfctl("pause", rid).returncode == 0
    own_engine.row_when(rid, lambda row: row["state"] == "preempted")
    assert own_engine.tfctl("mode", "observe").returncode == 0
    assert stream.text(800)  # nobody holds it any more
    refused = own_engine.json("pause", rid)
    assert (refused["error"]["code"], refused["error"]["hint"]) == ("unsupported", "tfctl mode enforce")
    mode = own_engine.json("events", "--kind", "mode", "-n", "1")["events"][0]
    assert (mode["terms"]["unheld_count"], mode["terms"]["paused_count"]) == (1, 1)
    assert own_engine.tfctl("mode", "enforce").returncode == 0

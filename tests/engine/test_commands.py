"""What tfctl tells of requests on the real engine and how it ends one: abort, explain, transfers, capacity.

All share one engine with two slots, so that a third stream waits.
"""

import http.client
import json
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest
from engine_rig import Rig
from engine_streams import FAST, flush_cache, live, wait_until_idle

PROMPT = "Tell me of the sea, the wind and the ships that sail on it, from the first to the last."
TOKENS = 4000  # far more than are made before a test is over


@pytest.fixture(scope="module")
def own_engine(_engines) -> Iterator[Rig]:
    with _engines.of_a_module(*FAST, "--max-running-requests", "2") as rig:
        assert rig.tfctl("mode", "enforce").returncode == 0
        assert rig.tfctl("tune", "max_swaps_per_s=0", "restore=load").returncode == 0  # nobody moves but by our hand
        yield rig


@pytest.fixture(autouse=True)
def idle(own_engine) -> Iterator[None]:
    yield
    wait_until_idle(own_engine)
    flush_cache(own_engine)
    status = own_engine.status()
    assert (status["engine"]["state"], status["policy"]["fault_count"]) == ("serving", 0)


@contextmanager
def streaming(rig: Rig, rate_tok_s: float) -> Iterator[http.client.HTTPConnection]:
    """A client that reads nothing until it is asked to, and leaves at the end."""
    url = urlsplit(rig.url)
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=120)
    body = {"model": rig.model, "prompt": PROMPT, "max_tokens": TOKENS, "stream": True, "ignore_eos": True}
    headers = {"Content-Type": "application/json", "X-TokenFlow-Rate": str(rate_tok_s)}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    try:
        yield connection
    finally:
        connection.close()


def chunks(connection: http.client.HTTPConnection) -> list[str]:
    """The data of every event until the server ends the stream."""
    lines = connection.getresponse().read().decode().splitlines()
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


def test_an_aborted_stream_ends_for_its_client_and_stays_ended(own_engine):
    with streaming(own_engine, 10) as connection:
        rid = live(own_engine, "running", tokens=5)
        done = own_engine.tfctl("abort", rid)
        assert (done.returncode, done.stdout) == (0, f"{rid}: aborted (it was running)\n"), done.stderr
        made = chunks(connection)
    assert made[-1] == "[DONE]"
    assert 5 <= len(made) < TOKENS
    assert own_engine.row_when(rid, lambda row: row["state"] == "aborted")["generated_tokens"] >= 5
    again = own_engine.tfctl("abort", rid)
    assert (again.returncode, again.stdout) == (0, f"{rid}: had ended (aborted)\n"), again.stderr
    assert own_engine.json("abort", "nosuch")["error"]["code"] == "not_found"


def test_one_that_waits_is_aborted_before_its_first_token(own_engine):
    with ExitStack() as clients:
        for _ in range(2):
            clients.enter_context(streaming(own_engine, 10))
        own_engine.row_when(live(own_engine, "running"), lambda row: row["generated_tokens"] > 0)
        third = clients.enter_context(streaming(own_engine, 10))
        rid = live(own_engine, "waiting")
        assert own_engine.json("abort", rid)["state"] == "waiting"
        own_engine.row_when(rid, lambda row: (row["state"], row["generated_tokens"]) == ("aborted", 0))
        chunks(third)  # its client is let go too
        assert len(own_engine.rows("--state", "running")) == 2


def test_explain_names_every_term_and_they_add_up(own_engine):
    with streaming(own_engine, 8):
        rid = live(own_engine, "running", tokens=100)
        document = own_engine.json("explain", rid)
        printed = own_engine.tfctl("explain", rid)
    terms = document["terms"]
    assert (document["rid"], document["state"]) == (rid, "running")
    assert terms["rate_tok_s"] == 8
    assert document["runway_s"] == pytest.approx(terms["unread_tokens"] / 8, abs=1e-6)
    transition_s = terms["evict_s"] + terms["load_s"] + terms["schedule_s"]
    assert document["required_runway_s"] >= terms["safety_factor"] * transition_s - 1e-6 > 0
    assert document["required_tokens"] == math.ceil(8 * document["required_runway_s"] - 1e-9)
    assert document["preemptible"] is (document["runway_s"] >= document["required_runway_s"])
    assert printed.stdout.startswith(f"{rid} is running (running_"), printed.stderr
    assert all(key in printed.stdout for key, value in terms.items() if value is not None)


def test_explain_of_who_waits_and_of_who_is_unknown(own_engine):
    with ExitStack() as clients:
        for _ in range(3):
            clients.enter_context(streaming(own_engine, 10))
        document = own_engine.json("explain", live(own_engine, "waiting"))
        assert (document["state"], document["preemptible"]) == ("waiting", False)
        assert document["reason"].startswith("waiting_")
    assert own_engine.json("explain", "nosuch")["error"]["code"] == "not_found"


def test_transfers_count_a_pause_and_its_way_back(own_engine):
    before = own_engine.json("transfers")["transfers"]
    with streaming(own_engine, 10):
        rid = live(own_engine, "running", tokens=50)
        assert own_engine.tfctl("pause", rid).returncode == 0
        held = own_engine.row_when(rid, lambda row: row["state"] == "preempted" and row["kv_device_tokens"] == 0)
        assert held["kv_host_tokens"] >= 50
        out = own_engine.json("transfers")["transfers"]["d2h"]
        assert out["total_bytes"] > before["d2h"]["total_bytes"]
        assert own_engine.tfctl("resume", rid).returncode == 0
        own_engine.row_when(rid, lambda row: row["state"] == "running" and row["kv_device_tokens"] > 0)
        document = own_engine.json("transfers")
    back = document["transfers"]["h2d"]
    bytes_per_token = (out["total_bytes"] - before["d2h"]["total_bytes"]) / held["kv_host_tokens"]
    assert back["total_bytes"] - before["h2d"]["total_bytes"] >= 50 * bytes_per_token
    assert back["bandwidth_bytes_s"] > 0
    assert document["latency"]["load_s"]["count"] >= 1
    assert document["latency"]["load_s"]["p99"] >= document["latency"]["load_s"]["p50"] > 0


def test_capacity_sums_the_rates_of_all_who_read(own_engine):
    with ExitStack() as clients:
        for rate_tok_s in (10, 6, 4):
            clients.enter_context(streaming(own_engine, rate_tok_s))
        live(own_engine, "waiting")
        own_engine.row_when(live(own_engine, "running"), lambda row: row["generated_tokens"] >= 20)
        capacity = own_engine.json("capacity")["capacity"]
        printed = own_engine.tfctl("capacity").stdout
    assert capacity["demand_tok_s"] == 20
    assert (capacity["running_count"], capacity["waiting_count"], capacity["preempted_count"]) == (2, 1, 0)
    assert capacity["capacity_tok_s"] > 0
    assert capacity["headroom_ratio"] == pytest.approx(1 - 20 / capacity["capacity_tok_s"], abs=1e-6)
    assert "2 running, 1 waiting, 0 preempted" in printed

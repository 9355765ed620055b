"""`tfctl bench` and the client helper on the real engine, with readers that ack."""

import json
import time

import httpx
import pytest

from tokenflow.client.paced_stream import PacedStream


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_benchmark_with_acks_fits_what_the_engine_counted(engine, tmp_path):
    requests_out = tmp_path / "requests.jsonl"
    document = engine.json(
        # Slow readers: a rate can only be learned of those who do not wait for the engine, on any machine.
        *("bench", "-n", "4", "--output-tokens", "fixed:96", "--ignore-eos", "--rates", "1:0.5,2:0.5"),
        *("--acks", "--goodput", "ttft:120000", "--requests-out", str(requests_out)),
    )
    [run] = document["runs"]
    assert (run["completed"], run["failed"]) == (4, 0), run["stream_errors"]
    assert run["total_output_tokens"] == 4 * 96
    assert run["slo_attainment"] == 1.0
    assert run["model_id"] == engine.model
    assert run["stream_failed_ack_count"] == run["stream_unackable_count"] == 0
    assert run["stream_ack_count"] >= 4
    for stream in lines_of(requests_out):
        row = engine.row_when(stream["rid"], lambda row: row["state"] == "finished")
        assert row["generated_tokens"] == stream["token_count"] == len(stream["token_times_s"])
        assert row["rate_source"] == "ack"
        assert row["consumed_tokens"] >= stream["acked_tokens"] > 0


def test_a_claim_that_is_not_kept_is_found_out(engine, tmp_path):
    """Claims 30 tokens a second and reads 4: the row's rate comes down towards what is acked."""
    requests_out = tmp_path / "requests.jsonl"
    engine.json(
        *("bench", "-n", "1", "--output-tokens", "fixed:150", "--ignore-eos", "--rates", "4", "--claim", "30"),
        *("--acks", "--warmup", "0", "--requests-out", str(requests_out)),
    )
    [stream] = lines_of(requests_out)
    row = engine.row_when(stream["rid"], lambda row: row["state"] == "finished")
    if stream["duration_s"] < 3.0:
        pytest.skip(f"the stream took {stream['duration_s']:.1f} s, too short for a rate to be learned from acks")
    assert row["rate_source"] == "ack"
    assert row["rate_tok_s"] < 30.0


def test_the_client_helper_reads_acks_and_leaves(engine):
    body = {
        "model": engine.model,
        "messages": [{"role": "user", "content": "Tell me about the sea."}],
        "max_tokens": 2000,
        "ignore_eos": True,
    }
    with PacedStream(engine.url, body, rate_tok_s=20.0, ack_interval_s=0.2) as stream:
        assert stream.can_ack
        rid = stream.rid
        pieces = iter(stream)
        until_s = time.monotonic() + 60
        while stream.consumed_tokens < 30:
            assert time.monotonic() < until_s
            next(pieces)
        own = httpx.get(
            f"{engine.url}/tokenflow/v1/streams/{rid}", headers={"X-TokenFlow-Ack-Token": stream.ack_token or ""}
        ).json()
        assert own["consumed_tokens"] >= 25, "some acks have come"
    gone = engine.row_when(rid, lambda row: row["state"] in ("finished", "aborted"))
    assert gone["state"] == "aborted"
    assert gone["generated_tokens"] < 2000

"""`tfctl bench` on the real engine: what it reports is what the engine counted."""

import json


def test_a_benchmark_fits_what_the_engine_counted(engine, tmp_path):
    requests_out = tmp_path / "requests.jsonl"
    document = engine.json(
        *("bench", "-n", "4", "--output-tokens", "fixed:48", "--ignore-eos", "--rates", "6:0.5,12:0.5"),
        *("--goodput", "ttft:120000", "--requests-out", str(requests_out)),
    )
    [run] = document["runs"]
    assert (run["completed"], run["failed"]) == (4, 0), run["stream_errors"]
    assert run["total_output_tokens"] == 4 * 48
    assert run["slo_attainment"] == 1.0
    assert run["model_id"] == engine.model
    streams = [json.loads(line) for line in requests_out.read_text().splitlines()]
    assert sum(stream["token_count"] for stream in streams) == run["total_output_tokens"]
    for stream in streams:
        row = engine.row_when(stream["rid"], lambda row: row["state"] == "finished")
        assert row["generated_tokens"] == stream["token_count"] == len(stream["token_times_s"])
        assert row["rate_source"] == "header"
        assert row["rate_tok_s"] in (6.0, 12.0)

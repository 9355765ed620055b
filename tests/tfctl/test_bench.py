"""`tfctl bench` against a server that streams at a known pace, refuses, goes silent, or is not there."""

import json
import os
import signal
import statistics
import subprocess
import sys

import jsonschema
import pytest
from openai_stand_in import PROMPT_TOKENS, StandIn

from tfctl.schemas import schema_of
from tokenflow.wire import EngineState

SMALL = ("--requests", "3", "--output-tokens", "fixed:5", "--rates", "20")


@pytest.fixture
def bench(tfctl):
    def call(server: StandIn, *arguments: str):
        return tfctl("bench", "--url", server.url, *arguments)

    return call


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_report_is_the_sum_of_its_requests(bench, tmp_path):
    runs_path, requests_path = tmp_path / "runs.jsonl", tmp_path / "requests.jsonl"
    files = ("--output", str(runs_path), "--requests-out", str(requests_path))
    with StandIn(fail_every=4) as server:
        outcome = bench(
            server,
            *("--arrivals", "poisson:40", "--requests", "12", "--output-tokens", "uniform:3:9", "--rates", "5,50"),
            *("--seed", "1", "--seed", "2", "--warmup", "0", "--goodput", "ttft:60000,tbt:60000", "--json", *files),
        )
    assert outcome.code == 1  # every fourth request is refused
    document = json.loads(outcome.out)
    jsonschema.validate(document, schema_of("tokenflow.bench/1"))
    assert lines_of(runs_path) == document["runs"]
    for run in document["runs"]:
        rows = [row for row in lines_of(requests_path) if row["seed"] == run["stream_seed"]]
        complete = [row for row in rows if row["outcome"] == "completed"]
        assert (len(rows), len(complete)) == (12, 9)
        assert (run["completed"], run["failed"]) == (9, 3)
        assert run["total_output_tokens"] == sum(len(row["token_times_s"]) for row in complete)
        assert run["total_output_tokens"] == sum(row["max_tokens"] for row in complete)
        assert run["total_input_tokens"] == 9 * PROMPT_TOKENS
        ends_s = [row["sent_s"] + row["duration_s"] for row in rows]
        duration_s = max(ends_s) - min(row["sent_s"] for row in rows)
        assert run["duration"] == pytest.approx(duration_s)
        assert run["output_throughput"] == pytest.approx(run["total_output_tokens"] / duration_s)
        ttfts_ms = [(row["token_times_s"][0] - row["sent_s"]) * 1e3 for row in complete]
        assert run["mean_ttft_ms"] == pytest.approx(statistics.mean(ttfts_ms))
        tpots_ms = [(row["duration_s"] - row["ttft_s"]) / (row["token_count"] - 1) * 1e3 for row in complete]
        assert run["median_tpot_ms"] == pytest.approx(statistics.median(tpots_ms))
        assert run["stream_stall_s_total"] == pytest.approx(sum(row["stall_s"] for row in rows))
        assert run["stream_stall_count"] == sum(row["stall_count"] for row in rows)
        assert run["slo_attainment"] == 9 / 12
        assert run["stream_errors"] == {"rejected: HTTP 503: admission is closed": 3}
        assert run["request_rate"] == 40.0


def test_the_pace_of_the_server_is_what_is_measured(bench):
    with StandIn(token_s=0.05) as server:
        outcome = bench(server, *SMALL, "--json", "--output-details")
    assert outcome.code == 0, outcome
    [run] = json.loads(outcome.out)["runs"]
    assert 50 <= run["mean_ttft_ms"] < 5000  # a lower bound that no machine can undercut, and one against a hang
    assert 50 <= run["mean_tpot_ms"] < 5000
    assert run["mean_e2el_ms"] >= 250
    assert run["max_concurrent_requests"] == 3
    assert server.bodies[0]["max_tokens"] == 16  # the warm-up, which no figure holds
    assert len(server.bodies) == 4
    assert {body["model"] for body in server.bodies} == {"toy"}


def test_people_get_a_table(bench):
    with StandIn() as server:
        outcome = bench(server, *SMALL, "--goodput", "ttft:60000")
    assert outcome.code == 0
    assert outcome.out.startswith("seed 1: 3 of 3 requests complete in ")
    assert "TTFT ms" in outcome.out
    assert "goodput: ttft:60000 kept by 100.0%" in outcome.out
    assert outcome.err == ""


def test_failures_are_summed_up_and_give_exit_code_1(bench):
    with StandIn(fail_every=1) as server:
        outcome = bench(server, *SMALL)
    assert outcome.code == 1
    assert "seed 1: 0 of 3 requests complete" in outcome.out
    assert outcome.err == "seed 1: 3 of 3 requests failed\n  3 × rejected: HTTP 503: admission is closed\n"


def test_acks_follow_the_readers(bench):
    with StandIn(token_s=0.1, has_acks=True) as server:
        outcome = bench(server, "-n", "2", "--output-tokens", "fixed:15", "--rates", "20", "--acks", "--json")
    [run] = json.loads(outcome.out)["runs"]
    assert run["stream_ack_count"] >= 2
    assert run["stream_failed_ack_count"] == run["stream_unackable_count"] == 0
    for acks in server.acks.values():
        consumed = [ack["consumed_tokens"] for ack in acks]
        assert consumed == sorted(set(consumed))
        assert consumed[-1] <= 15


def test_a_server_without_acks_is_told_of_once(bench):
    with StandIn() as server:
        outcome = bench(server, *SMALL, "--acks")
    assert outcome.code == 0
    assert outcome.err.count("warning: 3 streams could not be acked") == 1


@pytest.mark.parametrize(("claim", "sent"), [((), "20"), (("--claim", "7"), "7"), (("--claim", "none"), None)])
def test_what_is_claimed(bench, claim, sent):
    with StandIn() as server:
        assert bench(server, *SMALL, "--warmup", "0", *claim).code == 0
    assert {headers.get("X-TokenFlow-Rate") for headers in server.headers} == {sent}


def test_the_options_reach_the_server(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "k")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("only one\n")
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,4,2\n50,5,3\n")
    with StandIn(key="k") as server:
        own = ("--api-key-env", "MY_KEY", "--api", "completions", "--ignore-eos", "--count-chunks", "--model", "mine")
        assert bench(server, *own, "--prompts", str(prompts), *SMALL, "--warmup", "0").code == 0
        assert {body["prompt"] for body in server.bodies} == {"only one"}
        body = server.bodies[0]
        assert (body["model"], body["ignore_eos"]) == ("mine", True)
        assert "continuous_usage_stats" not in body["stream_options"]
        traced = ("--api-key-env", "MY_KEY", "--arrivals", f"trace:{trace}", "--speedup", "1000", "--json")
        [run] = json.loads(bench(server, *traced).out)["runs"]
        assert [body["max_tokens"] for body in server.bodies[-2:]] == [2, 3]
        assert (run["dataset_name"], run["request_rate"], run["num_prompts"]) == ("plain", "trace", 2)
        refused = bench(server, *SMALL)
    assert refused.code == 77
    assert "--api-key-env" in refused.err


def test_a_server_without_a_list_of_models(bench):
    with StandIn(has_models=False) as server:
        outcome = bench(server, *SMALL)
        assert outcome.code == 2
        assert "--model" in outcome.err
        assert bench(server, *SMALL, "--model", "x").code == 0


def test_without_a_url_the_daemons_engine_is_taken(tfctl, daemon):
    with StandIn(token_s=0.001) as server:
        daemon.engine_url = server.url
        assert tfctl("bench", *SMALL, "--warmup", "0").code == 0
        assert len(server.bodies) == 3
    daemon.state = EngineState.STOPPED
    outcome = tfctl("bench", *SMALL)
    assert outcome.code == 1
    assert "start it: tfctl start; or name a server: --url URL" in outcome.err


@pytest.mark.parametrize(
    "arguments",
    [
        *(("--url", "localhost:30000"), ("--url", "http://"), ("--url", "http://h:99999"), ("--arrivals", "steady:1")),
        *(("--requests", "0"), ("--rates", "0"), ("--goodput", "ttft"), ("--speedup", "0"), ("--claim", "x")),
        *(("--arrivals", "burst:3", "--requests", "4"), ("--arrivals", "trace:/nowhere"), ("--prompts", "/nowhere")),
        *(("--output-tokens", "trace"), ("--input-tokens", "many"), ("--output", "/nowhere/x"), ("--warmup", "-1")),
        *(("--requests-out", "/nowhere/x"), ("--api-key-env", "NO_SUCH_VARIABLE"), ("--seed", "x"), ("extra",)),
    ],
    ids=" ".join,
)
def test_usage_errors_send_nothing(tfctl, arguments):
    with StandIn() as server:
        outcome = tfctl("bench", *([] if "--url" in arguments else ["--url", server.url]), *arguments, "--json")
        assert server.bodies == []
    assert outcome.code == 2, outcome
    document = json.loads(outcome.out)
    jsonschema.validate(document, schema_of("tokenflow.error/1"))
    assert document["error"]["code"] == "usage"
    assert document["error"]["hint"]


def test_nobody_listens(tfctl, tmp_path):
    with StandIn() as server:
        url = server.url
    output = tmp_path / "runs.jsonl"
    outcome = tfctl("bench", "--url", url, "--output", str(output), "--json")
    assert outcome.code == 69
    assert json.loads(outcome.out)["error"]["code"] == "server_unreachable"
    assert not output.exists()


def test_a_time_limit_keeps_what_was_measured(bench, tmp_path):
    output = tmp_path / "runs.jsonl"
    with StandIn(stops_after=2) as server:
        outcome = bench(server, *SMALL, "--warmup", "0", "--timeout", "3", "--output", str(output), "--seed", "1")
    assert outcome.code == 75
    assert "the time limit of 3 s is over" in outcome.err
    [run] = lines_of(output)
    assert run["stream_is_interrupted"] is True
    assert (run["completed"], run["failed"], run["stream_cancelled_count"]) == (0, 0, 3)
    assert run["stream_received_tokens"] <= 6


@pytest.mark.parametrize("warm_up_count", [0, 1])
def test_ctrl_c_keeps_what_was_measured(home, tmp_path, warm_up_count):
    output, requests_out = tmp_path / "runs.jsonl", tmp_path / "requests.jsonl"
    command = [sys.executable, "-m", "tfctl.main", "bench", *SMALL, "--json", "--seed=1", "--seed=2"]
    with StandIn(stops_after=2) as server:
        files = [
            f"--url={server.url}",
            f"--warmup={warm_up_count}",
            f"--output={output}",
            f"--requests-out={requests_out}",
        ]
        process = subprocess.Popen(
            [*command, *files], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
        )
        try:
            assert server.has_token.wait(60)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert err == ""
    document = json.loads(out)
    if warm_up_count:  # which goes silent: nothing was measured yet
        assert document["runs"] == lines_of(output) == lines_of(requests_out) == []
        return
    [run] = document["runs"]  # the second seed was not begun
    assert run["stream_is_interrupted"] is True
    assert run["stream_sent_count"] == 3
    assert len(lines_of(requests_out)) == 3
    assert lines_of(output) == document["runs"]


def test_runs_are_appended_and_requests_are_written_anew(bench, tmp_path):
    output, requests_out = tmp_path / "runs.jsonl", tmp_path / "requests.jsonl"
    with StandIn(token_s=0.001) as server:
        for _ in range(2):
            bench(server, *SMALL, "--output", str(output), "--requests-out", str(requests_out), "--output-details")
    assert len(lines_of(output)) == 2
    assert len(lines_of(requests_out)) == 3
    assert lines_of(output)[0]["output_lens"] == [5, 5, 5]


def test_a_full_disk_costs_the_file_and_not_the_report(bench):
    with StandIn(token_s=0.001) as server:
        outcome = bench(server, *SMALL, "--output", "/dev/full", "--json")
    assert outcome.code == 1
    assert json.loads(outcome.out)["runs"][0]["completed"] == 3
    assert "error: cannot write /dev/full: No space left on device" in outcome.err


def test_without_aiohttp_it_says_what_to_install(home):
    code = "import sys; sys.modules['aiohttp'] = None; from tfctl.main import run; sys.exit(run(['bench']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 78
    assert "tokenflow-serving[bench]" in done.stderr
    assert "Traceback" not in done.stderr

"""`tfctl simulate` from its command line to its files."""

import json
import re

import jsonschema
import pytest

from tfctl.schemas import schema_of

SMALL = ("--gpu", "rtx4090", "--arrivals", "burst:12", "--output-tokens", "fixed:60", "--rates", "10")


def simulate(tfctl, *arguments):
    return tfctl("simulate", *SMALL, *arguments)


def test_the_document_keeps_its_schema_and_has_a_run_for_each_policy_and_seed(tfctl):
    outcome = simulate(tfctl, "--policy", "tokenflow", "--policy", "chunked", "--seed", "3", "--seed", "4", "--json")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    jsonschema.validate(document, schema_of("tokenflow.simulate/1"))
    assert [(run["policy"], run["seed"]) for run in document["runs"]] == [
        ("tokenflow", 3),
        ("tokenflow", 4),
        ("chunked", 3),
        ("chunked", 4),
    ]
    assert all(run["completed_count"] == 12 for run in document["runs"])
    assert "LLMServingSim" in document["engine"]["performance_source"]


def test_the_same_seed_gives_the_same_bytes(tfctl, tmp_path):
    def run(name):
        files = [tmp_path / f"{name}.{kind}" for kind in ("html", "requests", "events")]
        options = ("--html", files[0], "--requests-out", files[1], "--events", files[2])
        outcome = simulate(tfctl, "--policy", "tokenflow", "--policy", "andes", "--json", *map(str, options))
        assert outcome.code == 0, outcome.err
        return outcome.out, [path.read_bytes() for path in files]

    assert run("one") == run("other")


def test_another_seed_gives_other_arrivals_and_every_policy_sees_the_same(tfctl, tmp_path):
    path = tmp_path / "requests.jsonl"
    options = ("--arrivals", "poisson:5", "--requests", "10", "--seed", "1", "--seed", "2", "--requests-out", str(path))
    assert tfctl("simulate", *SMALL, *options, "--policy", "fcfs", "--policy", "mlfq").code == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]

    def asked(policy, seed):
        ours = [line for line in lines if (line["policy"], line["seed"]) == (policy, seed)]
        return [(line["rid"], line["arrival_s"], line["prompt_tokens"], line["output_tokens"]) for line in ours]

    assert len(asked("fcfs", 1)) == 10
    assert asked("fcfs", 1) == asked("mlfq", 1)
    assert asked("fcfs", 1) != asked("fcfs", 2)


def test_times_only_where_they_are_asked_for(tfctl):
    without = json.loads(simulate(tfctl, "--policy", "fcfs", "--json").out)
    assert without["generated_at"] == ""
    assert without["runs"][0]["wall_s"] is None
    timed = json.loads(simulate(tfctl, "--policy", "fcfs", "--json", "--timing").out)
    assert timed["generated_at"].endswith("Z")
    assert timed["runs"][0]["speed_ratio"] > 0


def test_the_table(tfctl):
    outcome = simulate(tfctl, "--seed", "1", "--seed", "2")
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[0].startswith("llama3-8b on rtx4090: ")
    assert "LLMServingSim" in lines[1]
    names = [line.split()[0] for line in lines if line.startswith(("tokenflow", "fcfs"))]
    assert names == ["tokenflow", "fcfs", "tokenflow", "fcfs"]  # the table, and the differences
    assert any("±" in line for line in lines)
    assert "means over 2 seeds" in outcome.out
    assert "tokenflow, seed 1" in outcome.err
    quiet = simulate(tfctl, "--quiet")
    assert quiet.err == ""
    assert quiet.out.splitlines()[0].startswith("policy")


def test_the_first_policy_is_held_against_the_others_seed_by_seed(tfctl):
    options = ("--policy", "tokenflow", "--policy", "fcfs", "--policy", "andes", "--seed", "1", "--seed", "2")
    lines = simulate(tfctl, *options).out.splitlines()
    place = next(index for index, line in enumerate(lines) if line.startswith("tokenflow less"))
    assert [line.split()[0] for line in lines[place + 1 : -1]] == ["fcfs", "andes"]
    runs = json.loads(simulate(tfctl, *options, "--json").out)["runs"]
    raw = {(run["policy"], run["seed"]): run["raw_tok_s"] for run in runs}
    mean = sum(raw["tokenflow", seed] - raw["fcfs", seed] for seed in (1, 2)) / 2
    assert f"{mean:+.0f} ±" in lines[place + 1]
    assert "less" not in simulate(tfctl, "--policy", "fcfs", "--seed", "1", "--seed", "2").out
    assert "less" not in simulate(tfctl, "--policy", "tokenflow", "--policy", "fcfs").out


@pytest.mark.parametrize("width", [60, 80, 110])
def test_the_table_fits_and_keeps_what_counts(width, tfctl, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = simulate(tfctl, "--quiet").out.splitlines()
    assert max(map(len, lines)) <= width
    for title in ("p99 s", "effective", "QoE", "stall s"):
        assert title in lines[0]


def test_the_report_needs_nothing_from_outside(tfctl, tmp_path):
    path = tmp_path / "report.html"
    assert simulate(tfctl, "--policy", "tokenflow", "--policy", "paper", "--html", str(path)).code == 0
    page = path.read_text()
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)
    assert page.count("<section>") == 2
    for title in ("Runway", "Requests", "Demand and capacity", "Time to first token", "Stall of each reader"):
        assert page.count(f'aria-label="{title}"') == 2


def test_every_decision_with_its_terms(tfctl, tmp_path):
    path = tmp_path / "events.jsonl"
    options = ("--max-running", "4", "--output-tokens", "fixed:200", "--rates", "4", "--events", str(path))
    assert simulate(tfctl, "--policy", "tokenflow", *options).code == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    pauses = [line for line in lines if line["action"].startswith("pause")]
    assert pauses
    assert all(line["runway_s"] >= line["required_runway_s"] for line in pauses if line["cause"] == "first_token")
    assert {line["rid"] for line in lines if line["action"] == "admit"} == {f"r{n:06d}" for n in range(1, 13)}


def test_a_tunable_changes_our_policy_and_stands_in_the_document(tfctl):
    options = ("--policy", "tokenflow", "--max-running", "4", "--rates", "4", "--json")
    document = json.loads(simulate(tfctl, *options, "--tune", "max_swaps_per_s=0").out)
    assert document["tunables"] == {"max_swaps_per_s": "0"}
    assert document["runs"][0]["preemption_count"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--policy", "lifo"), "tokenflow, paper, guide"),
        (("--gpu", "h300"), "rtx4090"),
        (("--tune", "quantum=1"), "there is no tunable 'quantum'"),
        (("--tune", "variant=paper"), "--policy"),
        (("--tune", "quantum_s"), "KEY=VALUE"),
        (("--kv-tokens", "100", "--mem-fraction", "0.5"), "both say"),
        (("--mem-fraction", "0.1"), "--kv-tokens N"),
        (("--mem-fraction", "1.5"), "at most 1"),
        (("--interference", "0.5"), "1 or more"),
        (("--overlap", "some"), "layers"),
        (("--goodput", "tpot:50"), "ttft:500,tbt:200"),
        (("--arrivals", "burst:0"), "burst:12"),
        (("--output-tokens", "trace"), "trace:FILE"),
        (("--html", "/nonexistent/report.html"), "--html FILE"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error_that_says_what_would(tfctl, arguments, says):
    outcome = simulate(tfctl, *arguments)
    assert outcome.code == 2, outcome.err
    assert says in outcome.err


def test_requests_that_can_never_fit_are_named(tfctl):
    outcome = simulate(tfctl, "--policy", "fcfs", "--kv-tokens", "600", "--input-tokens", "normal:512:100")
    assert outcome.code == 0
    assert re.search(r"\d+ requests are larger than the KV pool", outcome.out)


def test_a_time_limit_ends_it(tfctl):
    arguments = ("--policy", "tokenflow", "--requests", "20000", "--arrivals", "poisson:3", "--timeout", "0.3")
    outcome = tfctl("simulate", *SMALL, *arguments)
    assert outcome.code == 75
    assert "--timeout" in outcome.err


def test_a_calibrated_engine(tfctl, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        "[model]\nserved_name = 'mine'\n"
        "[performance.decode]\nfixed_s = 0.02\nrow_s = 0.001\ntoken_s = 0.0\n"
        "[performance.prefill]\nfixed_s = 0.02\ntoken_s = 0.0001\n"
        "[performance.kv]\nbytes_per_token = 1000.0\npool_tokens = 20000\n"
    )
    outcome = simulate(tfctl, "--calibrate", str(path), "--mem-fraction", "1", "--policy", "fcfs", "--json")
    assert outcome.code == 0, outcome.err
    engine = json.loads(outcome.out)["engine"]
    assert (engine["model"], engine["kv_tokens"]) == ("mine", 20000)

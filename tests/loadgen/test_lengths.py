"""Length laws, prompts from files, and plans made of them."""

import random
import statistics

import msgspec
import pytest

from tokenflow.errors import ConfigurationError, UsageError
from tokenflow.loadgen.lengths import parse_lengths
from tokenflow.loadgen.plan import Workload, plan_streams
from tokenflow.loadgen.prompt_file import deal, read_prompts

WORKLOAD = Workload(request_count=3, arrivals="burst:3", rates=None, output_tokens="fixed:9", seed=1)


def test_the_laws():
    rng = random.Random(1)
    assert parse_lengths("fixed:7", "output-tokens").draw(3, rng) == [7, 7, 7]
    uniform = parse_lengths("uniform:2:4", "output-tokens")
    assert set(uniform.draw(200, rng)) == {2, 3, 4}
    assert uniform.mean_tokens == 3.0
    normal = parse_lengths("normal:100", "output-tokens").draw(4000, rng)
    assert statistics.mean(normal) == pytest.approx(100, abs=2)
    assert statistics.stdev(normal) == pytest.approx(25, abs=2)
    assert min(parse_lengths("normal:2:50", "output-tokens").draw(500, rng)) == 1


@pytest.mark.parametrize(
    "text",
    [
        *("", "7", "fixed", "fixed:0", "fixed:-1", "fixed:1.5", "fixed:x", "uniform:1", "uniform:5:4", "uniform:0:4"),
        *("normal:0", "normal:nan", "normal:1:0", "normal:1:inf", "normal:1:2:3", "zipf:2"),
    ],
)
def test_unusable_laws_are_usage_errors_that_name_the_option(text):
    with pytest.raises(UsageError) as caught:
        parse_lengths(text, "input-tokens")
    assert caught.value.hint
    assert caught.value.field == "input-tokens"


def test_lengths_and_arrivals_from_a_trace(tmp_path):
    path = tmp_path / "own:1.csv"  # a colon in the name is no separator
    path.write_text("arrival_s,input_tokens,output_tokens\n1,10,20\n3,11,21\n4,12,22\n")
    traced = msgspec.structs.replace(
        WORKLOAD, arrivals=f"trace:{path}", input_tokens="trace", output_tokens="trace", speedup=4.0, request_count=2
    )
    plans = plan_streams(traced)
    assert [plan.arrival_s for plan in plans] == [0.0, 0.5]
    assert [plan.max_tokens for plan in plans] == [20, 21]
    assert [len(plan.prompt.split()) for plan in plans] == [10, 11]
    with pytest.raises(UsageError, match="3 requests, not 4"):
        plan_streams(msgspec.structs.replace(traced, request_count=4))


def test_prompts_of_a_length_share_no_beginning():
    plans = plan_streams(msgspec.structs.replace(WORKLOAD, input_tokens="fixed:40"))
    assert all(len(plan.prompt.split()) == 40 for plan in plans)
    assert len({plan.prompt[:20] for plan in plans}) == 3
    assert all(plan.rate_tok_s is None for plan in plans)


@pytest.mark.parametrize(
    "change", [{"input_tokens": "trace"}, {"output_tokens": "trace"}, {"input_tokens": "fixed:3", "prompts": ("a",)}]
)
def test_workloads_that_contradict_themselves(change):
    with pytest.raises(UsageError) as caught:
        plan_streams(msgspec.structs.replace(WORKLOAD, **change))
    assert caught.value.hint


def test_prompts_from_files(tmp_path):
    text = tmp_path / "prompts.txt"
    text.write_text("one\n\n two \n")
    lines = tmp_path / "prompts.jsonl"
    lines.write_text('{"prompt": "one", "more": 1}\n{"prompt": "two"}\n')
    assert read_prompts(text) == read_prompts(lines) == ("one", "two")
    assert sorted(deal(("one", "two"), 4, random.Random(1))) == ["one", "one", "two", "two"]
    plans = plan_streams(msgspec.structs.replace(WORKLOAD, prompts=("one", "two", "three")))
    assert {plan.prompt for plan in plans} == {"one", "two", "three"}


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("a.jsonl", b'{"prompt": "x"}\n{"text": "y"}\n', "line 2"),
        ("a.jsonl", b"{oops\n", "line 1"),
        ("a.txt", b" \n\n", "no prompt"),
        ("a.txt", b"\xff\xfe", "not a text file"),
    ],
)
def test_prompt_files_that_make_no_sense(tmp_path, name, contents, message):
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(ConfigurationError, match=message):
        read_prompts(tmp_path / name)
    with pytest.raises(UsageError, match="cannot read"):
        read_prompts(tmp_path / "missing")

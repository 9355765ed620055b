"""Trace files: every format, packed or not, whole or damaged; and the published files where they are at hand."""

import gzip
from pathlib import Path

import pytest
from datasets import dataset

from tokenflow.errors import ConfigurationError, TokenFlowError, UsageError
from tokenflow.loadgen.traces.read import read_trace
from tokenflow.loadgen.traces.trace import TraceFormat, TraceRequest

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2023-11-16 18:17:04.0319600,3180,8\r\n"
)
AZURE_2024 = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,ChatGPT,0,0,0,Conversation log\n"
    "118,GPT-4,417,276,693,Conversation log\n"
)
BURSTGPT_3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "7,12,3.5,GPT-4,20,30,50,API log\n"
)
MOONCAKE = (
    '{"timestamp": 3000, "input_length": 6760, "output_length": 3, "hash_ids": [0, 1]}\n\n'
    '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0]}\n'
)
PLAIN = "\ufeffarrival_s,input_tokens,output_tokens\n1.5,10,20\n2.0,11,21\n"


def written(tmp_path: Path, text: str, *, packed: bool = False) -> Path:
    path = tmp_path / "trace"
    raw = text.encode()
    path.write_bytes(gzip.compress(raw) if packed else raw)
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("text", "kind", "rows", "dropped"),
    [
        (AZURE, TraceFormat.AZURE, [(0.0, 4808, 10), (0.052, 3180, 8)], 0),
        (AZURE_2024, TraceFormat.AZURE, [(0.0, 2162, 5)], 0),
        (BURSTGPT, TraceFormat.BURSTGPT, [(0.0, 472, 18), (113.0, 417, 276)], 1),
        (BURSTGPT_3, TraceFormat.BURSTGPT, [(0.0, 20, 30)], 0),
        (MOONCAKE, TraceFormat.MOONCAKE, [(0.0, 6758, 500), (3.0, 6760, 3)], 0),
        (PLAIN, TraceFormat.PLAIN, [(0.0, 10, 20), (0.5, 11, 21)], 0),
    ],
)
def test_a_format_is_known_by_its_first_line(tmp_path, text, kind, rows, dropped, packed):
    trace = read_trace(written(tmp_path, text, packed=packed))
    assert trace.format is kind
    assert trace.dropped_count == dropped
    assert [request.arrival_s for request in trace.requests] == pytest.approx([row[0] for row in rows], abs=2e-6)
    assert [(request.input_tokens, request.output_tokens) for request in trace.requests] == [row[1:] for row in rows]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no known format"),
        ("a,b,c\n1,2,3\n", "no known format"),
        (AZURE + "yesterday,1,2\n", "line 4: TIMESTAMP"),
        (BURSTGPT + "200,GPT-4,x,1,1,API log\n", "line 5: Request tokens"),
        (BURSTGPT + "nan,GPT-4,1,1,1,API log\n", "line 5: Timestamp"),
        (BURSTGPT + "200\n", "line 5: Request tokens"),
        (PLAIN + "3,1.5,2\n", "line 4: input_tokens"),
        (MOONCAKE + "[1]\n", "line 4: not a JSON object"),
        (MOONCAKE + '{"timestamp": -1, "input_length": 1, "output_length": 1}\n', "line 4: timestamp"),
        ("arrival_s,input_tokens,output_tokens\n1,0,5\n", "no request with input and output"),
    ],
)
def test_contents_that_make_no_sense_name_the_line(tmp_path, text, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_trace(written(tmp_path, text))
    assert caught.value.hint


def test_a_damaged_or_missing_file_is_one_clear_error(tmp_path):
    path = written(tmp_path, PLAIN, packed=True)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ConfigurationError, match="damaged"):
        read_trace(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not a text file"):
        read_trace(path)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(UsageError, match="cannot read"):
            read_trace(missing)


def test_any_cut_of_a_packed_file_is_an_error_of_ours(tmp_path):
    path = written(tmp_path, AZURE, packed=True)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(TokenFlowError):
            read_trace(path)


# The figures are those that the data's own description gives (rows, span).
PUBLISHED = [
    ("AzureLLMInferenceTrace_code.csv.gz", TraceFormat.AZURE, 8819, 3436),
    ("AzureLLMInferenceTrace_conv.csv.gz", TraceFormat.AZURE, 19366, 3502),
    ("burstgpt1_first379.csv", TraceFormat.BURSTGPT, 364, 37003),
    ("mooncake_conversation_trace.jsonl.gz", TraceFormat.MOONCAKE, 12031, 3537),
    ("sharegpt_llama31_300req_lengths.csv", TraceFormat.PLAIN, 300, 29),
]


@pytest.mark.parametrize(("name", "kind", "count", "span_s"), PUBLISHED)
def test_published_traces(name, kind, count, span_s):
    trace = read_trace(dataset(f"traces/{name}"))
    assert trace.format is kind
    assert len(trace.requests) == count
    assert trace.requests[0].arrival_s == 0.0
    assert trace.requests[-1].arrival_s == pytest.approx(span_s, abs=1.0)
    assert all(isinstance(request, TraceRequest) for request in trace.requests)

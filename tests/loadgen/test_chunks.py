"""Chunks of both routes, usage, and the shapes in which servers send errors."""

import pytest

from tokenflow.loadgen.chunks import Chunk, MalformedChunkError, parse_chunk
from tokenflow.loadgen.sse import ServerEvent


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}', Chunk(text="Hi")),
        ('{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}', Chunk()),
        ('{"choices":[{"index":0,"text":"Hi","finish_reason":"length"}]}', Chunk(text="Hi", finish_reason="length")),
        ('{"choices":[{"delta":{"reasoning_content":"hm","content":null}}]}', Chunk(text="hm")),
        (
            '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14}}',
            Chunk(completion_tokens=5, prompt_tokens=9),
        ),
        (
            '{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":2}}',
            Chunk(text="a", completion_tokens=2, prompt_tokens=9),
        ),
        ('{"error":{"message":"out of memory","type":"x","code":500}}', Chunk(error="out of memory")),
        ('{"error":"plain"}', Chunk(error="plain")),
        ('{"object":"error","message":"too long","code":400}', Chunk(error="too long")),
    ],
)
def test_what_a_chunk_says(data, expected):
    assert parse_chunk(ServerEvent(data)) == expected


def test_an_event_named_error_is_an_error():
    assert parse_chunk(ServerEvent('{"message":"the engine is stopping"}', "error")).error == "the engine is stopping"


@pytest.mark.parametrize("data", ["", "{", "[1]", "null", "{}", '{"choices":3}', '{"choices":[{"text":5}]}'])
def test_anything_else_is_malformed(data):
    with pytest.raises(MalformedChunkError):
        parse_chunk(ServerEvent(data))

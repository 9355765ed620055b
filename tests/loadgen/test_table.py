"""The table of results, as it is printed where there is no terminal."""

import msgspec
import pytest
from rich.console import Console

from tokenflow.loadgen.result import Outcome, StreamResult, summarise
from tokenflow.loadgen.table import stream_table, summary_lines
from tokenflow.policy.states import RateSource, RequestState
from tokenflow.wire import RequestRow

STREAMS = [
    StreamResult(
        **{"index": 0, "outcome": Outcome.COMPLETED, "rid": "aaa", "finish_reason": "length", "rate_tok_s": 4.0},
        **{"token_count": 64, "ttft_s": 0.5, "least_runway_s": 1.25, "sent_s": 0.0, "token_times_s": [0.5, 8.0]},
    ),
    StreamResult(index=1, outcome=Outcome.REJECTED, error="HTTP 503: closed"),
]
ROW = RequestRow(
    **{"rid": "aaa", "state": RequestState.FINISHED, "class_": "reading", "rate_tok_s": 4.0},
    **{"rate_source": RateSource.HEADER, "prompt_tokens": 9, "generated_tokens": 64, "delivered_tokens": 64},
    **{"consumed_tokens": 64.0, "unread_tokens": 0, "runway_s": 0.0, "stall_count": 3},
)


def printed(table, width: int = 160) -> list[list[str]]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return [line.split() for line in capture.get().splitlines()]


def test_streams_and_how_the_engine_saw_them():
    heading, first, second = printed(stream_table(STREAMS, {"aaa": ROW}, is_plain=True))
    assert heading[:2] == ["REQUEST", "ENDED"]
    assert first == ["aaa", "length", "0.50", "64", "4.0", "1.2", "0", "0.0", "64", "3"]
    assert second == ["#1", "rejected", "–", "0", "–", "–", "0", "0.0", "–", "–"]


def test_without_rows_the_engine_has_no_columns():
    heading, *_ = printed(stream_table(STREAMS, is_plain=True))
    assert "ENGINE" not in heading


@pytest.mark.parametrize(("width", "rows"), [(80, None), (100, {"tf-0bbf277e46bf6527": ROW})])
def test_nothing_is_cut_off_on_a_terminal(width, rows):
    stream = msgspec.structs.replace(
        STREAMS[0], rid="tf-0bbf277e46bf6527", ttft_s=107.25, token_count=12345, rate_tok_s=10000.0, stall_s=1234.5
    )
    lines = printed(stream_table([stream], rows, is_plain=False), width)
    assert "…" not in "".join(word for line in lines for word in line)
    expected = ["tf-0bbf277e46bf6527", "length", "107.25", "12345", "10000.0", "1.2", "0", "1234.5"]
    assert expected + ([] if rows is None else ["64", "3"]) in lines


def test_the_summary_in_words():
    lines = summary_lines(summarise(STREAMS))
    assert lines[0] == "1 of 2 streams complete, 64 tokens in 8.0 s, 8.0 tok/s"
    assert "p50 0.50" in lines[1]
    assert "0 of 2 stalled" in lines[2]
    assert "first token: –" in summary_lines(summarise([]))

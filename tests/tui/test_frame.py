"""`tfctl top --once`: one frame as text."""

import subprocess
import sys

from document_samples import request_rows, status_document

from tfctl.output import Look
from tokenflow.wire import EngineState, RequestsDocument
from tokenflow_tui.frame import render_frame


def requests_of(rows):
    return RequestsDocument(requests=rows, total_count=len(rows))


def test_header_then_table():
    frame = render_frame(status_document(EngineState.SERVING), requests_of(request_rows()), Look(width=120))
    assert frame[0].startswith("● serving  SmolLM2-135M-Instruct  demo-cpu")
    assert frame[1].startswith("demand 48.5 of 62 tok/s")
    assert frame[2] == ""
    assert frame[3].startswith("RID")
    assert len(frame) == 4 + len(request_rows())


def test_what_is_wrong_is_in_the_header():
    failed = render_frame(status_document(EngineState.FAILED), requests_of([]), Look())
    assert "killed (signal 9)" in failed[0]
    assert failed[-1] == "no requests"
    alarmed = render_frame(status_document(EngineState.BUSY), requests_of([]), Look())
    assert "▲ 1 stream is stalled" in alarmed


def test_an_unmeasured_capacity_is_said_so():
    status = status_document(EngineState.SERVING)
    status.capacity.capacity_tok_s = None
    assert "demand 48.5 tok/s, capacity not measured yet" in render_frame(status, requests_of([]), Look())[1]


def test_every_state_in_ascii():
    for state in EngineState:
        frame = render_frame(status_document(state), requests_of(request_rows()), Look(), use_ascii=True)
        assert all(line.isascii() for line in frame)


def test_it_needs_no_textual():
    code = "import sys, tokenflow_tui.frame; print([m for m in ('textual', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

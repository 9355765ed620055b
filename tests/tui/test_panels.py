"""What the panels say, as text."""

from dataclasses import replace

import pytest
from document_samples import event_rows, request_rows, status_document

from tfctl.output import Look, Role
from tfctl.views.status import render_status
from tfctl.views.transfers import eta_s
from tokenflow.policy.states import RequestState
from tokenflow.tuning import ExplainDocument
from tokenflow.wire import Alarm, EngineState, GpuInfo, TransferQueue, Transfers
from tokenflow_tui.bar import time_line
from tokenflow_tui.detail import detail_lines
from tokenflow_tui.gpus import gpu_lines
from tokenflow_tui.header import header_lines
from tokenflow_tui.moment import Sample
from tokenflow_tui.strips import line_strip
from tokenflow_tui.timelines import Timeline
from tokenflow_tui.transfers import transfer_lines
from tokenflow_tui.trends import sparkline, trend_lines, trends_of

LOOK = Look()
PLAIN = Look(unicode=False)


def texts(lines):
    return [line_strip(line).text for line in lines]


def test_sparkline_is_scaled_to_its_peak_and_blank_where_nothing_is_known():
    assert sparkline([None, 0.0, 1.0, 8.0], 5) == "  ▁▂█"
    assert sparkline([0.0, 0.0], 2) == "▁▁"
    assert sparkline([0.0, 4.0], 2, unicode=False) == "_#"


def test_trends_are_rates_of_totals_and_outlive_a_restart_of_the_engine():
    totals = [(0, 0.0), (2, 0.5), (0, 0.0), (1, 0.25)]  # the engine restarts after the second
    samples = [(100.0 + index, Sample(0.4, stall, count, 50.0)) for index, (count, stall) in enumerate(totals)]
    trends = {trend.label: trend for trend in trends_of(samples, 40, LOOK)}
    assert trends["pauses"].now == "3 in 3.0 s"
    assert trends["stalls"].now == "0.75 s in 3.0 s"
    assert trends["stalls"].role is Role.WARN
    assert trends["made"].now == "50 tok/s"
    assert max(value for value in trends["pauses"].values if value is not None) == 2.0


@pytest.mark.parametrize(("width", "height"), [(40, 4), (80, 2), (160, 1)])
def test_trends_fit(width, height):
    samples = [(100.0 + index, Sample(0.4, 0.0, 0, 50.0)) for index in range(200)]
    lines = texts(trend_lines(samples, width, height, LOOK))
    assert len(lines) == height
    assert all(len(line) <= width for line in lines)
    assert "TTFT p99" in lines[0]
    assert all(line.isascii() for line in texts(trend_lines(samples, width, height, PLAIN)))


def test_no_samples_no_lines_of_them():
    assert not any(texts(trend_lines([], 80, 2, LOOK)))


def test_transfers_tell_queue_bandwidth_time_and_who_moves():
    rows = request_rows()
    rows[0].state, rows[0].kv_host_tokens = RequestState.LOADING, 96
    queues = Transfers(
        d2h=TransferQueue(queue_count=3, queue_bytes=2**20, bandwidth_bytes_s=2**23, total_bytes=2**22),
        h2d=TransferQueue(queue_count=1, queue_bytes=100),
    )
    lines = texts(transfer_lines(queues, rows, LOOK))
    assert lines[0] == "↥ to host  3 queued  1 MiB  done in 0.12 s  8 MiB/s  4 MiB in all"
    assert lines[1] == "  no request moves"
    assert "time not known" in lines[2]
    assert lines[3] == "  …0000a1 96 tok"
    assert len(transfer_lines(queues, rows, LOOK, height=2)) == 2
    assert all(line.isascii() for line in texts(transfer_lines(queues, rows, PLAIN)))


def test_an_empty_queue_is_done_at_once():
    assert eta_s(TransferQueue()) == 0.0
    assert eta_s(TransferQueue(queue_bytes=5)) is None


def test_gpus_show_what_is_known():
    known = GpuInfo(
        index=1,
        name="NVIDIA H200",
        utilization_ratio=0.8,
        memory_used_bytes=71 * 2**30,
        memory_total_bytes=139 * 2**30,
        temperature_c=62.0,
        power_w=310.4,
        throttle_reasons=["thermal"],
    )
    busy, rest = "1 H200  ██████▍· 80 %  held back: thermal", "71/139 GiB  62 °C  310 W"
    assert texts(gpu_lines([known], LOOK)) == [busy, f"  {rest}"]
    assert texts(gpu_lines([known], LOOK, 1)) == [f"{busy}  {rest}"]
    assert texts(gpu_lines([GpuInfo(index=0)], LOOK, 1)) == ["0 GPU"]
    status = status_document(EngineState.SERVING)
    status.gpus = [known]
    assert f"  gpu        {busy}  {rest}" in render_status(status, LOOK)
    assert texts(gpu_lines([GpuInfo(index=n) for n in range(9)], LOOK, 4))[-1] == "and 6 more"
    assert texts(gpu_lines([], LOOK)) == ["GPU  none: NVML tells of none", "tfctl doctor says why"]


def test_header_has_overload_forecast_and_alarms():
    status = status_document(EngineState.BUSY)
    status.policy.overload = True
    status.capacity.saturation_forecast_s = 40.0
    status.alarms = status.alarms * 5
    lines = texts(header_lines(status, LOOK, 2))
    assert "OVERLOAD" in lines[0]
    assert "full in 40 s" in lines[1]
    assert lines[2] == "▲ 1 stream is stalled  see which: tfctl ps"
    assert lines[4] == "▲ and 3 more alarms: tfctl status"
    status.engine.reason = "3 streams are still under way, 24 s are left"
    (first, *_) = texts(header_lines(status, LOOK))
    assert "OVERLOAD" in first[:80], "a narrow screen cuts the end off"


def test_nothing_from_a_log_breaks_the_screen():
    status = status_document(EngineState.FAILED)
    status.engine.reason = "killed\n\x1b[2Jby\tsomebody"
    (first, *_) = texts(header_lines(status, LOOK))
    assert "killed  [2Jby somebody" in first


def test_a_start_shows_how_far_it_is():
    (first, *_) = texts(header_lines(status_document(EngineState.STARTING), LOOK))
    assert "loading weights  ████▉······· 41 %" in first


def test_detail_has_everything():
    row = request_rows()[1]
    row.required_runway_s, row.preemptible = 0.48, True
    row.kv_device_tokens, row.kv_host_tokens = 108, 96
    timeline = Timeline(
        spans=[(90.0, RequestState.WAITING), (92.0, RequestState.RUNNING), (97.0, RequestState.PREEMPTED)],
        events=event_rows()[1:4],
        row=row,
        last_s=100.0,
    )
    explained = ExplainDocument(
        rid=row.rid,
        state="running",
        reason=None,
        runway_s=3.3,
        required_runway_s=0.48,
        required_tokens=3,
        preemptible=True,
        terms={"evict_s": 0.08, "is_held": False, "nothing": None},
    )
    lines = texts(detail_lines(row, timeline, explained, 100.0, LOOK, 62))
    text = "\n".join(lines)
    for part in (
        "reading, reads 6 tok/s (from default)",
        "needs 0.48 s  safe to pause",
        "108 tokens on the GPU, 96 on the host",
        "12 in the prompt, 19 unread",
        "…▶",
        "▶‖",
        "how=load",
        "evict_s",
        "0.08",
    ):
        assert part in text, part
    assert "nothing" not in text
    assert all(len(line) <= 62 for line in lines if "=" not in line)
    plain = texts(detail_lines(row, replace(timeline), explained, 100.0, PLAIN, 62))
    assert all(line.isascii() for line in plain)


def test_detail_of_nobody():
    assert texts(detail_lines(None, None, None, 0.0, LOOK, 60)) == ["no request"]


def test_the_time_bar_marks_the_place():
    start, middle, end = (line_strip(time_line(0.0, at_s, 100.0, "replay", 80, PLAIN)).text for at_s in (0, 50, 100))
    assert "O-" in start
    assert "=O" in end
    assert "=O-" in middle
    assert all(len(text) <= 80 for text in (start, middle, end))


def test_a_lone_alarm_s_next_step_is_never_cut_off():
    status = status_document(EngineState.SERVING)
    status.alarms = [Alarm(kind="stalled", message="m" * 60, hint="tfctl explain RID")]
    assert texts(header_lines(status, Look(width=100), 3))[2:] == [f"▲ {'m' * 60}  tfctl explain RID"]
    assert texts(header_lines(status, Look(width=70), 3))[2:] == [f"▲ {'m' * 60}", "  tfctl explain RID"]
    status.alarms *= 2
    assert len(texts(header_lines(status, Look(width=70), 3))) == 4

"""One scrape's facts, all of them told, and its text."""

import re

from document_samples import request_rows, status_document
from telemetry_samples import stream, telemetry

from tokenflow.counters import Counters, Direction
from tokenflow.policy.states import Reason, RequestState
from tokenflow.policy.tunables import Tunables, plain
from tokenflow.wire import Alarm, AlarmKind, EngineState, GpuInfo
from tokenflowd.metrics.collector import render
from tokenflowd.metrics.facts import Facts


def facts() -> Facts:
    counters = Counters(plugin_spent_s=0.25)
    counters.add_tokens("reading", 30)
    counters.add_effective("reading", 24.5)
    counters.add_zombies("reading", 2)
    counters.add_stall("reading", 1.5)
    counters.add_preemption("reading", Reason.PREEMPTED_SURPLUS)
    counters.observe_ttft("reading", 0.3)
    counters.observe_runway("reading", 4.0)
    counters.observe_transfer(Direction.D2H, 0.002)
    counters.decision_s.observe(0.0004)
    message = telemetry(stream(), stream(state=RequestState.FINISHED), sent_s=20.0)
    message.counters, message.disconnect_counts = counters, {"stream": 1}
    document = status_document(EngineState.BUSY, "/run/control.sock")
    document.alarms = [Alarm(kind=AlarmKind.ENFORCE_BLOCKED, message="")]
    document.gpus = [
        GpuInfo(
            index=0,
            name="H200",
            uuid="GPU-1",
            memory_used_bytes=10,
            memory_total_bytes=20,
            utilization_ratio=0.5,
            power_w=400.0,
            power_limit_w=700.0,
            temperature_c=60.0,
            pcie_rx_bytes_s=1e9,
            pcie_tx_bytes_s=2e9,
            pcie_generation=5,
            pcie_width=16,
            pcie_width_max=16,
            ecc_corrected_count=1,
            ecc_uncorrected_count=0,
            throttle_reasons=["thermal"],
        )
    ]
    return Facts(document, message, 0.1, request_rows(), plain(Tunables()), ("novel",))


def text_of(facts_: Facts) -> str:
    text = render(facts_)[0].decode()
    return re.sub(r'version="[^"]*",', 'version="VERSION",', text, count=1)

"""Copies of KV against the PCIe link that they go over."""

import sys

import pytest
from document_samples import status_document

from tfctl.doctor import link
from tfctl.host_documents import CheckState
from tokenflow.wire import EngineState, StatusDocument

GEN5 = link.Link(0, 5, 16)


class FakeNvml:
    """Three GPUs: a fast link at rest, a slow one, and one of which the driver does not tell."""

    class NVMLError(Exception):
        pass

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:
        if handle == 2:
            raise self.NVMLError("Not Supported")
        return (5, 4)[handle]

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:
        return (16, 8)[handle]


@pytest.mark.parametrize(
    ("generation", "lanes", "gb_s"), [(3, 16, 15.75), (4, 16, 31.5), (5, 16, 63.0), (5, 8, 31.5), (6, 16, 121.0)]
)
def test_what_a_link_carries(generation, lanes, gb_s):
    assert link.Link(0, generation, lanes).bytes_s / 1e9 == pytest.approx(gb_s, rel=0.01)


def test_the_slowest_link_counts(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert link.slowest_link() == link.Link(1, 4, 8)


@pytest.mark.parametrize(
    ("bytes_s", "how", "state", "told"),
    [
        (5.3e10, "measured", CheckState.PASS, "carries 63.0 GB/s"),
        (1.2e10, "measured", CheckState.WARN, "has 12.0 GB/s to the host (measured)"),
        (1.2e10, "assumed", CheckState.PASS, "(assumed)"),
        (7.0e10, "assumed", CheckState.WARN, "priced too low"),
    ],
)
def test_the_profile_against_the_link(bytes_s, how, state, told):
    check = link.judge("d2h", GEN5, "mine", {"bytes_s": bytes_s, "how": how}, None)
    assert check.state is state
    assert told in check.message
    if state is CheckState.WARN:
        assert "tfctl profile measure --profile mine" in (check.hint or "")


@pytest.mark.parametrize(
    ("bytes_s", "state"), [(None, CheckState.SKIP), (2e10, CheckState.WARN), (5e10, CheckState.PASS)]
)
def test_the_engine_s_copies_where_the_profile_has_no_figure(status, bytes_s, state):
    status.transfers.h2d.bandwidth_bytes_s = bytes_s
    check = link.judge("h2d", GEN5, "mine", None, status)
    assert check.state is state
    assert (check.hint is None) is (state is CheckState.PASS)


def test_on_this_machine(home, monkeypatch, status):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    found = link.checks(True, "h200-llama3-8b", status)
    assert [(check.name, check.state) for check in found] == [
        ("bandwidth d2h", CheckState.WARN),  # 53 GB/s assumed, and the slow GPU's link carries 16
        ("bandwidth h2d", CheckState.WARN),
    ]
    (without,) = link.checks(False, "h200-llama3-8b", status)
    assert (without.state, without.message) == (
        CheckState.SKIP,
        "no GPU here, so there is no link to hold copies against",
    )
    (unknown,) = link.checks(True, "no-such", status)
    assert unknown.state is CheckState.SKIP
    (of_cpu,) = link.checks(True, "demo-cpu", status)
    assert (of_cpu.state, of_cpu.message) == (
        CheckState.SKIP,
        "profile demo-cpu runs on the CPU: no link is in the way",
    )


@pytest.fixture
def status() -> StatusDocument:
    return status_document(EngineState.SERVING)

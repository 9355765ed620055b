"""NVML where it is whole, where it answers half of the questions, where it is not there, and where it hangs."""

import asyncio
import sys
import threading
from types import ModuleType, SimpleNamespace

import pynvml
import pytest

from tokenflow.wire import GpuInfo
from tokenflowd.gpus import watch
from tokenflowd.gpus.nvml import Nvml
from tokenflowd.gpus.watch import GpuWatch

WHOLE = {
    "nvmlInit": None,
    "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": "handle",
    "nvmlDeviceGetName": b"NVIDIA H200",
    "nvmlDeviceGetUUID": "GPU-1",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=10, total=20),
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=37, memory=5),
    "nvmlDeviceGetPowerUsage": 412_500,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetPcieThroughput": 2_000,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4 | 0x40,
}


def put_nvml(monkeypatch: pytest.MonkeyPatch, **changed: object) -> None:
    """NVML's module with our answers; an exception as an answer is raised. Names and constants are the real ones."""
    module = ModuleType("pynvml")
    for name in dir(pynvml):
        if name.isupper() or name.startswith(("NVML", "nvmlClocks")):
            setattr(module, name, getattr(pynvml, name))
    for name, answer in {**WHOLE, **changed}.items():
        assert hasattr(pynvml, name), f"nvidia-ml-py has no {name}"

        def call(*_arguments, answer=answer):
            if isinstance(answer, Exception):
                raise answer
            return answer

        setattr(module, name, call)
    monkeypatch.setitem(sys.modules, "pynvml", module)


def test_every_figure_in_our_units(monkeypatch):
    put_nvml(monkeypatch)
    assert Nvml().read() == [
        GpuInfo(
            index=0,
            name="NVIDIA H200",
            uuid="GPU-1",
            memory_used_bytes=10,
            memory_total_bytes=20,
            utilization_ratio=0.37,
            power_w=412.5,
            power_limit_w=700.0,
            temperature_c=61.0,
            pcie_rx_bytes_s=2e6,
            pcie_tx_bytes_s=2e6,
            pcie_generation=5,
            pcie_generation_max=5,
            pcie_width=16,
            pcie_width_max=16,
            ecc_corrected_count=0,
            ecc_uncorrected_count=0,
            throttle_reasons=["power_cap", "thermal"],
        )
    ]


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in ("nvmlInit", "nvmlDeviceGetCount")])
def test_what_a_gpu_does_not_tell_is_null_and_the_rest_is_there(monkeypatch, name):
    put_nvml(monkeypatch, **{name: pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)})
    gpus = Nvml().read()
    if name == "nvmlDeviceGetHandleByIndex":
        assert gpus == []
        return
    put_nvml(monkeypatch)
    whole = Nvml().read()[0]
    changed = {field for field in GpuInfo.__struct_fields__ if getattr(gpus[0], field) != getattr(whole, field)}
    assert 1 <= len(changed) <= 2, changed
    assert {getattr(gpus[0], field) for field in changed} == {None}


def test_a_release_of_the_library_without_a_function_costs_that_figure(monkeypatch):
    put_nvml(monkeypatch)
    delattr(sys.modules["pynvml"], "nvmlDeviceGetPcieThroughput")
    gpu = Nvml().read()[0]
    assert (gpu.pcie_rx_bytes_s, gpu.power_w) == (None, 412.5)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_no_driver_is_an_oserror(monkeypatch, code):
    put_nvml(monkeypatch, nvmlInit=pynvml.NVMLError(code))
    with pytest.raises(OSError, match=r"Library|Driver"):
        Nvml()


class Source:
    def __init__(self, *answers: list[GpuInfo] | Exception) -> None:
        self.answers = list(answers)
        self.read_count = 0

    def read(self) -> list[GpuInfo]:
        answer = self.answers[min(self.read_count, len(self.answers) - 1)]
        self.read_count += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(watch, "INTERVAL_S", 0.01)
    monkeypatch.setattr(watch, "RETRY_S", 0.01)


async def test_the_latest_figures_are_kept_and_a_driver_that_comes_late_is_found(quick):
    attempts = []

    def open_source() -> Source:
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError("no driver")
        return Source([GpuInfo(index=0, temperature_c=50)], OSError("reset"), [GpuInfo(index=0, temperature_c=60)])

    gpus = GpuWatch(open_source)
    assert gpus.gpus == []
    gpus.start()
    await until(lambda: gpus.gpus and gpus.gpus[0].temperature_c == 50)
    await until(lambda: len(attempts) > 3)
    await gpus.close()


async def test_nvml_that_hangs_neither_holds_the_loop_nor_goes_on_telling_old_figures(quick, monkeypatch):
    gate, is_hanging = threading.Event(), threading.Event()

    class Hanging(Source):
        def read(self) -> list[GpuInfo]:
            if self.read_count:
                is_hanging.set()
                gate.wait(20)
            return super().read()

    gpus = GpuWatch(lambda: Hanging([GpuInfo(index=0)]))
    gpus.start()
    try:
        await until(is_hanging.is_set)
        assert gpus.gpus == [GpuInfo(index=0)]
        monkeypatch.setattr(watch, "STALE_AFTER_S", 0.0)
        await asyncio.sleep(0.01)
        assert gpus.gpus == []
        async with asyncio.timeout(5):
            await gpus.close()
    finally:
        gate.set()

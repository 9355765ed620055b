"""Reads NVML. Every figure is asked for by itself: old GPUs, MIG slices and containers answer only some of them."""

from collections.abc import Callable
from typing import Any, TypeVar

from tokenflow.wire import GpuInfo, ThrottleReason

_VALUE = TypeVar("_VALUE")
# Bits of nvmlClocksEventReasons (nvml.h), by what they mean to an operator.
_THROTTLE_BITS = {
    0x4: ThrottleReason.POWER_CAP,
    0x8: ThrottleReason.HW_SLOWDOWN,
    0x20: ThrottleReason.THERMAL,
    0x40: ThrottleReason.THERMAL,
    0x80: ThrottleReason.POWER_BRAKE,
}


class Nvml:
    """NVML, opened. Its calls may take tens of milliseconds, or hang with a GPU that has fallen off the bus."""

    def __init__(self) -> None:
        """Raises OSError where there is no NVML, no driver, or no GPU that it would talk about."""
        try:
            import pynvml
        except ImportError as error:
            raise OSError("nvidia-ml-py is not installed") from error
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise OSError(str(error)) from error

    def read(self) -> list[GpuInfo]:
        """All GPUs of this moment; one that does not answer at all is left out."""
        found = []
        for index in range(self._ask(int, "nvmlDeviceGetCount") or 0):
            handle = self._ask(_as_it_is, "nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                found.append(self._read_one(index, handle))
        return found

    def _read_one(self, index: int, handle: Any) -> GpuInfo:  # noqa: ANN401 - NVML's own
        nvml, ask = self._nvml, self._ask
        memory = ask(_as_it_is, "nvmlDeviceGetMemoryInfo", handle)
        usage = ask(_as_it_is, "nvmlDeviceGetUtilizationRates", handle)
        return GpuInfo(
            index=index,
            name=ask(_text, "nvmlDeviceGetName", handle),
            uuid=ask(_text, "nvmlDeviceGetUUID", handle),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            utilization_ratio=None if usage is None else usage.gpu / 100,
            power_w=ask(_thousandth, "nvmlDeviceGetPowerUsage", handle),
            power_limit_w=ask(_thousandth, "nvmlDeviceGetEnforcedPowerLimit", handle),
            temperature_c=ask(float, "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
            pcie_rx_bytes_s=ask(_kilo, "nvmlDeviceGetPcieThroughput", handle, nvml.NVML_PCIE_UTIL_RX_BYTES),
            pcie_tx_bytes_s=ask(_kilo, "nvmlDeviceGetPcieThroughput", handle, nvml.NVML_PCIE_UTIL_TX_BYTES),
            pcie_generation=ask(int, "nvmlDeviceGetCurrPcieLinkGeneration", handle),
            pcie_generation_max=ask(int, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
            pcie_width=ask(int, "nvmlDeviceGetCurrPcieLinkWidth", handle),
            pcie_width_max=ask(int, "nvmlDeviceGetMaxPcieLinkWidth", handle),
            ecc_corrected_count=self._ecc_count(handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ecc_uncorrected_count=self._ecc_count(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            throttle_reasons=ask(_throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons", handle),
        )

    def _ecc_count(self, handle: Any, kind: int) -> int | None:  # noqa: ANN401
        return self._ask(int, "nvmlDeviceGetTotalEccErrors", handle, kind, self._nvml.NVML_VOLATILE_ECC)

    def _ask(self, convert: Callable[[Any], _VALUE], name: str, *arguments: Any) -> _VALUE | None:
        """None where this GPU, driver or release of nvidia-ml-py does not know it."""
        try:
            return convert(getattr(self._nvml, name)(*arguments))
        except (self._nvml.NVMLError, AttributeError, ValueError):
            return None


def _as_it_is(value: Any) -> Any:  # noqa: ANN401
    return value


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _thousandth(value: int) -> float:
    return value / 1000


def _kilo(value: int) -> float:
    """NVML's KB/s."""
    return value * 1000.0


def _throttle_reasons(bits: int) -> list[str]:
    found = {reason for bit, reason in _THROTTLE_BITS.items() if bits & bit}
    return [reason.value for reason in ThrottleReason if reason in found]

"""The GPUs, as NVML and the kernel tell. Without a GPU all of it is skipped; a driver that lies is told as it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfctl.doctor.answer import failed, passed, size, skipped, warned
from tfctl.host_documents import Check

_FREE_LEAST_RATIO = 0.5
_HERE = "on a GPU host: nvidia-smi"


def checks(has_gpu: bool) -> list[Check]:
    """The driver first; the rest only where it answers."""
    if not has_gpu:
        return [skipped("gpu", "no GPU driver is loaded on this machine", _HERE)]
    try:
        import pynvml
    except ImportError:
        hint = "pip install 'tokenflow-serving[daemon]'"
        return [skipped("gpu", "the package nvidia-ml-py is not installed", hint)]
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [failed("gpu", f"the NVIDIA driver does not answer: {error}", "nvidia-smi; dmesg | grep -i nvrm")]
    try:
        count = pynvml.nvmlDeviceGetCount()
        version = pynvml.nvmlSystemGetDriverVersion()
        found = [passed("gpu", f"{count} GPUs, driver {version}")]
        for index in range(count):
            found += _of_one(pynvml, index)
        return found
    finally:
        pynvml.nvmlShutdown()


def _of_one(nvml: Any, index: int) -> list[Check]:  # noqa: ANN401 - a module without types
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    parts: tuple[tuple[str, Callable[[Any, Any, int], Check]], ...] = (
        ("memory", _memory),
        ("mig", _mig),
        ("pcie", _pcie),
        ("ecc", _ecc),
        ("numa", _numa),
    )
    found = []
    for name, look in parts:
        try:
            found.append(look(nvml, handle, index))
        except nvml.NVMLError as error:
            found.append(
                skipped(f"gpu{index} {name}", f"the driver does not say: {error}", f"nvidia-smi -i {index} -q")
            )
    return found


def _memory(nvml: Any, handle: Any, index: int) -> Check:  # noqa: ANN401
    info = nvml.nvmlDeviceGetMemoryInfo(handle)
    message = f"{size(info.free)} of {size(info.total)} free"
    if info.free < _FREE_LEAST_RATIO * info.total:
        hint = f"who holds it: nvidia-smi -i {index}; an engine of ours: tfctl status"
        return warned(f"gpu{index} memory", message, hint)
    return passed(f"gpu{index} memory", message)


def _mig(nvml: Any, handle: Any, index: int) -> Check:  # noqa: ANN401
    current, _ = nvml.nvmlDeviceGetMigMode(handle)
    if current:
        hint = "name an instance: CUDA_VISIBLE_DEVICES=MIG-... in the profile's env"
        return warned(f"gpu{index} mig", "MIG is on: an engine sees one instance of it", hint)
    return passed(f"gpu{index} mig", "MIG is off")


def _pcie(nvml: Any, handle: Any, index: int) -> Check:  # noqa: ANN401
    now = (nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle), nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))
    most = (nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle), nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))
    message = f"PCIe generation {now[0]} x{now[1]}, of {most[0]} x{most[1]} at most"
    if now[1] < most[1]:
        hint = f"fewer lanes than the slot could have: lspci -vv; load it and look again: nvidia-smi -i {index} -q"
        return warned(f"gpu{index} pcie", message, hint)
    return passed(f"gpu{index} pcie", f"{message} (the generation rises under load)")


def _ecc(nvml: Any, handle: Any, index: int) -> Check:  # noqa: ANN401
    errors = nvml.nvmlDeviceGetTotalEccErrors(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    if errors:
        hint = f"reset or replace it: nvidia-smi -i {index} -q -d ECC,ROW_REMAPPER"
        return failed(f"gpu{index} ecc", f"{errors} uncorrected memory errors since the driver was loaded", hint)
    return passed(f"gpu{index} ecc", "no uncorrected memory errors")


def _numa(nvml: Any, handle: Any, index: int) -> Check:  # noqa: ANN401
    nodes = sorted(path.name for path in Path("/sys/devices/system/node").glob("node[0-9]*"))
    if len(nodes) < 2:
        return passed(f"gpu{index} numa", "one NUMA node")
    bus = nvml.nvmlDeviceGetPciInfo(handle).busId
    text = (bus.decode() if isinstance(bus, bytes) else bus).lower()
    path = Path("/sys/bus/pci/devices") / text[-12:] / "numa_node"
    try:
        node = int(path.read_text())
    except (OSError, ValueError):
        return skipped(f"gpu{index} numa", f"{path} cannot be read", "nvidia-smi topo -m")
    hint = f"keep the host pool near: numactl --cpunodebind={node} --membind={node}, or NUMAPolicy= in the unit"
    return warned(f"gpu{index} numa", f"it hangs on NUMA node {node} of {len(nodes)}", hint)

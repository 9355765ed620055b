"""KV between host and GPU: what copies reach against what the PCIe link can carry."""

from dataclasses import dataclass
from typing import Any

from tfctl.doctor.answer import passed, skipped, warned
from tfctl.host_documents import Check
from tfctl.profiles import read_profile
from tokenflow.errors import TokenFlowError
from tokenflow.wire import StatusDocument

# One lane, one direction, after its line code (8b/10b, 128b/130b, FLIT): PCI Express Base Specification 6.0.
_LANE_BYTES_S = {1: 2.5e8, 2: 5.0e8, 3: 9.846e8, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
_POOR_RATIO = 0.5  # pinned copies of large blocks reach eight or nine tenths; pageable ones a quarter to a half
_DIRECTIONS = {"d2h": "to the host", "h2d": "to the device"}


@dataclass(frozen=True, slots=True)
class Link:
    """What one GPU hangs on. The generation is the highest that both ends know: at rest it is lowered."""

    index: int
    generation: int
    lanes: int

    @property
    def bytes_s(self) -> float:
        """Each direction. Raises KeyError for a generation that is not known here."""
        return _LANE_BYTES_S[self.generation] * self.lanes

    def __str__(self) -> str:
        return f"gpu{self.index}'s PCIe generation {self.generation} x{self.lanes} carries {_rate(self.bytes_s)}"


def checks(has_gpu: bool, profile: str, status: StatusDocument | None) -> list[Check]:
    """One a direction: the profile's figure, or the engine's latest copy where the profile has none."""
    if not has_gpu:
        return [skipped("bandwidth", "no GPU here, so there is no link to hold copies against", "tfctl transfers")]
    link = slowest_link()
    if link is None:
        return [
            skipped("bandwidth", "the driver does not say what link its GPUs hang on", "nvidia-smi -q | grep -i pci")
        ]
    try:
        _, _, contents = read_profile(profile)
    except TokenFlowError as error:
        return [skipped("bandwidth", error.message, error.hint or "tfctl profile list")]
    if contents.get("engine", {}).get("device") == "cpu":
        return [skipped("bandwidth", f"profile {profile} runs on the CPU: no link is in the way", "tfctl transfers")]
    performance = contents.get("performance", {})
    return [judge(direction, link, profile, performance.get(direction), status) for direction in _DIRECTIONS]


def slowest_link() -> Link | None:
    """Of all GPUs whose driver tells; None where none does."""
    try:
        import pynvml
    except ImportError:
        return None
    nvml: Any = pynvml
    found = []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                generation = nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
                link = Link(index, generation, nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))
            except nvml.NVMLError:
                continue
            if link.generation in _LANE_BYTES_S and link.lanes:
                found.append(link)
    finally:
        nvml.nvmlShutdown()
    return min(found, key=lambda link: link.bytes_s, default=None)


def judge(
    direction: str, link: Link, profile: str, section: dict[str, Any] | None, status: StatusDocument | None
) -> Check:
    """`section` is the profile's `[performance.d2h]` or `[performance.h2d]`."""
    name = f"bandwidth {direction}"
    again = f"on an idle engine: tfctl profile measure --profile {profile}"
    if section is None:
        return _of_engine(name, direction, link, profile, status, again)
    reached, how = float(section["bytes_s"]), section["how"]
    message = f"profile {profile} has {_rate(reached)} {_DIRECTIONS[direction]} ({how}); {link}"
    if reached > link.bytes_s:
        return warned(name, f"{message}: pauses and resumes are priced too low", again)
    if how == "measured" and reached < _POOR_RATIO * link.bytes_s:
        hint = (
            "is the host pool pinned (ulimit -l) and on the GPU's NUMA node (nvidia-smi topo -m)? Then again, " + again
        )
        return warned(name, message, hint)
    return passed(name, message)


def _of_engine(name: str, direction: str, link: Link, profile: str, status: StatusDocument | None, again: str) -> Check:
    queue = None if status is None else getattr(status.transfers, direction)
    if queue is None or queue.bandwidth_bytes_s is None:
        return skipped(name, f"profile {profile} has no figure, and no engine has copied anything yet", again)
    message = f"the engine's latest copy {_DIRECTIONS[direction]} reached {_rate(queue.bandwidth_bytes_s)}; {link}"
    if queue.bandwidth_bytes_s < _POOR_RATIO * link.bytes_s:
        return warned(name, message, f"one copy may be a small one; {again}")
    return passed(name, message)


def _rate(bytes_s: float) -> str:
    return f"{bytes_s / 1e9:.1f} GB/s"

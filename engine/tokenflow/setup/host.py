"""What this machine has, read from the kernel and from file names: nothing is imported, no driver is woken."""

from pathlib import Path


def has_gpu(root: Path = Path("/")) -> bool:
    """True where a GPU's kernel driver is loaded: NVIDIA's, AMD's compute driver, or WSL's bridge to either.

    `root` is the root of the file system that is looked at.
    """
    return any((root / path).exists() for path in ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/kfd", "dev/dxg"))

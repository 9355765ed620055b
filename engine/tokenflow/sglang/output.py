"""A full disk must not end an engine: what its processes print then is lost, and they go on.

Python raises on a print that cannot be written, wherever in SGLang it stands. Lines that C code writes never did harm.
"""

import io
import os
import sys

_BUFFER = memoryview | bytes | bytearray


class LossyFile(io.RawIOBase):
    """A descriptor that takes everything. What the file behind it refuses is dropped, and counted."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.lost_bytes = 0

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, content: _BUFFER, /) -> int:  # type: ignore[override]  # any buffer; ours are these
        left = memoryview(content)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            self.lost_bytes += len(left)
        return len(content)


def forgive() -> None:
    """From now on nothing that this process prints can fail. Loses nothing where the disk has room."""
    sys.stdout.flush()
    sys.stderr.flush()
    sys.stdout, sys.stderr = _text(1), _text(2)


def _text(descriptor: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        LossyFile(descriptor),  # type: ignore[arg-type]  # as Python itself does it when it is told not to buffer
        encoding="utf-8",
        errors="backslashreplace",
        write_through=True,
    )

"""The JSON lines that `tfctl bench` writes: one a run, one a request."""

from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec

from tokenflow.errors import OperationError, UsageError
from tokenflow.loadgen.bench_record import BenchRun
from tokenflow.loadgen.result import StreamResult


class RecordFiles:
    """Opens both files at once, before anything is sent: a path that cannot be written must not cost a run.

    Lines are appended to the file of runs, as `sglang.bench_serving` does; the file of requests is written anew.
    """

    def __init__(self, runs: Path | None, requests: Path | None) -> None:
        self._runs = _open(runs, "ab", "output")
        try:
            self._requests = _open(requests, "wb", "requests-out")
        except UsageError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for file in (self._runs, getattr(self, "_requests", None)):
            if file is not None:
                file.close()

    def write_run(self, run: BenchRun, lists: dict[str, object]) -> None:
        """Raises OperationError where the disk takes no more."""
        if self._runs is not None:
            _write(self._runs, [msgspec.to_builtins(run) | lists])

    def write_requests(self, seed: int, streams: Sequence[StreamResult]) -> None:
        """Raises OperationError where the disk takes no more."""
        if self._requests is not None:
            _write(self._requests, [{"seed": seed} | msgspec.to_builtins(stream) for stream in streams])


def _open(path: Path | None, mode: Literal["ab", "wb"], field: str) -> FileIO | None:
    if path is None:
        return None
    try:
        return path.open(mode, buffering=0)  # a full disk is then noticed at once and once
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", hint=f"name another file: --{field} FILE", field=field
        ) from None


def _write(file: FileIO, lines: list[dict[str, object]]) -> None:
    try:
        left = memoryview(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise OperationError(
            f"cannot write {file.name}: {error.strerror}", hint="make room, or name another file, and run it again"
        ) from None

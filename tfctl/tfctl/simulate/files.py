"""The files that `tfctl simulate` writes beside its report. Opened before anything runs."""

from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tokenflow.errors import OperationError, UsageError


class LineFile:
    """JSON lines, or one text, written anew. A path of None takes everything and keeps nothing."""

    def __init__(self, path: Path | None, option: str) -> None:
        """Raises UsageError naming `option` for a path that cannot be written."""
        self._file: FileIO | None = None
        if path is not None:
            try:
                self._file = path.open("wb", buffering=0)
            except OSError as error:
                raise UsageError(
                    f"cannot write {path}: {error.strerror}", hint=f"name another file: --{option} FILE", field=option
                ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def is_wanted(self) -> bool:
        return self._file is not None

    def write_lines(self, lines: list[msgspec.Struct]) -> None:
        """Raises OperationError where the disk takes no more."""
        if self._file is not None and lines:
            self._write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))

    def write_text(self, text: str) -> None:
        """Raises OperationError where the disk takes no more."""
        if self._file is not None:
            self._write(text.encode())

    def _write(self, content: bytes) -> None:
        assert self._file is not None
        try:
            left = memoryview(content)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise OperationError(
                f"cannot write {self._file.name}: {error.strerror}",
                hint="make room, or name another file, and run it again",
            ) from None

"""Working tfctl from a program: what a person would type, run as a child process, its JSON decoded."""

import subprocess
import sys
import time
from collections.abc import Iterable, Sequence

import msgspec

from tokenflow.errors import OperationError, from_body
from tokenflow.wire import ErrorBody, RequestRow, RequestsDocument, StatusDocument


class Tfctl:
    """`command` is what comes before the arguments of tfctl; the default takes this environment's own."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", "tfctl.main")) -> None:
        self._command = tuple(command)

    def show(self, *arguments: str) -> int:
        """Runs a command in the foreground, with its own output on our terminal, and gives its exit code."""
        sys.stdout.flush()
        return subprocess.run([*self._command, *arguments], check=False).returncode

    def status(self) -> StatusDocument:
        """Raises OperationError if tfctl gives no document. A stopped engine is a document like any other."""
        return msgspec.convert(self._json("status"), StatusDocument)

    def rows(self, rids: Iterable[str], *, patience_s: float = 3.0) -> dict[str, RequestRow]:
        """The daemon's rows of these requests. Waits a little for the last telemetry: rows end after their streams."""
        wanted = set(rids)
        deadline_s = time.monotonic() + patience_s
        while True:
            document = msgspec.convert(self._json("ps", "--all"), RequestsDocument)
            rows = {row.rid: row for row in document.requests if row.rid in wanted}
            is_settled = len(rows) == len(wanted) and not any(row.state.is_live for row in rows.values())
            if is_settled or time.monotonic() >= deadline_s:
                return rows
            time.sleep(0.2)

    def _json(self, *arguments: str) -> object:
        result = subprocess.run([*self._command, "--json", *arguments], check=False, capture_output=True)
        try:
            document = msgspec.json.decode(result.stdout)
        except msgspec.DecodeError as error:
            last = result.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise OperationError(
                f"tfctl {' '.join(arguments)} gave no document (exit code {result.returncode}): {' '.join(last)}",
                hint="look at it with: tfctl status",
            ) from error
        if isinstance(document, dict) and "error" in document:
            raise from_body(msgspec.convert(document["error"], ErrorBody))
        return document

"""Writing to stdout and stderr: never a traceback when the reader has gone, no colour where none is wanted."""

import os
import re
import shlex
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TextIO

import msgspec
import typer

from tokenflow.wire import Document, stamp

INTERRUPTED = 130  # exit code after Ctrl-C, as shells have it
_COMMANDS = (
    "start|stop|restart|status|ps|top|transfers|capacity|explain|mode|tune|pause|resume|abort|events|logs|wait|metrics"
)
_TO_THE_DAEMON = re.compile(rf"\btfctl (?=(?:{_COMMANDS})\b)")


class Role(StrEnum):
    """What a piece of text means; how it looks is decided in one place. Colour never stands alone: a glyph or a
    word always says the same."""

    PLAIN = "plain"
    STRONG = "strong"
    FAINT = "faint"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Look:
    """What the stream can show. `width` None: no limit (a pipe). `socket`: what commands that are named must say."""

    colour: bool = False
    unicode: bool = True
    width: int | None = None
    socket: Path | None = None

    def paint(self, text: str, role: Role) -> str:
        """`text` in the role's colour, or unchanged where colour is not wanted."""
        if not self.colour:
            return text
        match role:
            case Role.PLAIN:
                return text
            case Role.STRONG:
                return typer.style(text, bold=True)
            case Role.FAINT:
                return typer.style(text, dim=True)
            case Role.GOOD:
                return typer.style(text, fg="green")
            case Role.WARN:
                return typer.style(text, fg="yellow")
            case Role.BAD:
                return typer.style(text, fg="red", bold=True)


def with_socket(text: str, socket: Path | None) -> str:
    """`text` with `--socket` in each command that is named: pasted, it must reach the same daemon."""
    if socket is None:
        return text
    words = f"tfctl --socket {shlex.quote(str(socket))} "
    return _TO_THE_DAEMON.sub(lambda _: words, text)


def look_of(stream: TextIO | None, socket: Path | None = None) -> Look:
    """NO_COLOR, TERM=dumb and pipes turn colour off; COLUMNS sets the width."""
    if stream is None:
        return Look(socket=socket)
    is_terminal = stream.isatty()
    colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    columns = os.environ.get("COLUMNS", "")
    width: int | None = None
    if columns.isdecimal() and int(columns) > 0:
        width = int(columns)
    elif is_terminal:
        width = os.get_terminal_size(stream.fileno()).columns or None
    return Look(colour=colour, unicode=encoding.startswith("utf"), width=width, socket=socket)


def write_text(text: str) -> None:
    """Text on stdout, as it is."""
    _write(text)


def write_line(text: str = "") -> None:
    """One line on stdout."""
    _write(text + "\n")


def write_json(document: Document) -> None:
    """One JSON document on one line on stdout, stamped unless the daemon has done so."""
    if not document.schema:
        stamp(document)
    _write(msgspec.json.encode(document).decode() + "\n")


def note(text: str) -> None:
    """One line for people on stderr."""
    if sys.stderr is not None:
        try:
            print(text, file=sys.stderr, flush=True)
        except OSError:
            pass  # nobody can be told


def _write(text: str) -> None:
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _divert_stdout()
        raise ReaderGoneError from None
    except OSError as error:
        _divert_stdout()
        raise OutputLostError(error.strerror) from None
    except UnicodeEncodeError:
        sys.stdout.write(text.encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding))
        sys.stdout.flush()


def _divert_stdout() -> None:
    """What is still buffered must not fail once more when the interpreter flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class ReaderGoneError(Exception):
    """stdout was closed by its reader (`tfctl ps | head`). Ends the command quietly."""


class OutputLostError(Exception):
    """stdout cannot be written, such as on a full disk. Nothing more can be shown there."""

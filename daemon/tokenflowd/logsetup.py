"""The daemon's own log: JSON lines for machines, colours for a terminal. Whom a line is about: `logcontext`."""

import contextlib
import logging
from enum import StrEnum
from typing import TextIO, cast

import structlog


class LogFormat(StrEnum):
    AUTO = "auto"  # console on a terminal, json elsewhere
    CONSOLE = "console"
    JSON = "json"


class _LossyStream:
    """What a full disk, or a reader that has gone, refuses is lost: a log line must never cost what it tells of."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def configure(chosen: LogFormat, stream: TextIO) -> None:
    is_console = chosen is LogFormat.CONSOLE or (chosen is LogFormat.AUTO and stream.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)
        if is_console
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # As text: the structured form lists local variables, an engine's environment among them.
            *([] if is_console else [structlog.processors.format_exc_info]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _LossyStream(stream))),
        cache_logger_on_first_use=False,
    )

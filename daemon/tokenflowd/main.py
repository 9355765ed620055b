"""`tokenflowd`: runs in the foreground until it is told to end."""

import argparse
import asyncio
import contextlib
import functools
import os
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

import msgspec
import structlog

from tokenflow import locations
from tokenflow.errors import TokenFlowError
from tokenflow.version import __version__
from tokenflow.wire import LeftoverEngine
from tokenflowd import leftover, processes, settings
from tokenflowd.control_socket import ControlSocket
from tokenflowd.daemon import Daemon
from tokenflowd.logsetup import LogFormat, configure
from tokenflowd.paths import DaemonPaths
from tokenflowd.service_manager import ServiceManager

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FORCED_EXIT_CODE = 1


class LeftoverAction(StrEnum):
    """What is to be done with the engine of a daemon that was killed."""

    SHOW = "show"
    END = "end"


def main(arguments: list[str] | None = None) -> None:
    """Exit codes: 0, 1 (another daemon runs, or a failure), 2 (usage), 78 (configuration)."""
    options = _parse(arguments)
    # Of `--leftover` stdout is the answer's.
    configure(options.log_format, sys.stdout if options.leftover is None else sys.stderr)
    code = 0
    try:
        if options.leftover is None:
            asyncio.Runner().run(_run(options))
        else:
            _tell(asyncio.Runner().run(_leftover(options.socket, options.leftover)))
    except TokenFlowError as error:
        code = error.exit_code
        hint = f" ({error.hint})" if error.hint else ""
        print(f"tokenflowd: {error.message}{hint}", file=sys.stderr)
    except Exception as error:  # noqa: BLE001 - a defect: told in one line, with its trace in the log
        code = 1
        structlog.get_logger().exception("daemon_crashed")
        print(f"tokenflowd: {type(error).__name__}: {error}", file=sys.stderr)
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Without waiting for threads: a demo model may be in the making, minutes from its end, and nobody wants it now."""
    processes.send(processes.children_outside_engines(), signal.SIGTERM)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a full disk, a reader that is gone
            stream.flush()
    os._exit(code)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tokenflowd",
        description="Runs and watches an SGLang engine with TokenFlow, and serves the control socket. See tfctl.",
        allow_abbrev=False,
    )
    parser.add_argument("--socket", type=_absolute, help="the control socket (default: the user's runtime folder)")
    parser.add_argument(
        "--system",
        action="store_true",
        help="run as the host's service: the socket is /run/tokenflow/control.sock, an engine is kept when the daemon "
        "ends, started again when it fails, and started with the daemon where it ran before",
    )
    parser.add_argument("--on-demand", action="store_true", help="end when the engine has been stopped by a client")
    parser.add_argument(
        "--leftover",
        type=LeftoverAction,
        choices=list(LeftoverAction),
        help="serve nothing: show, or end, the engine of a daemon that was killed, and print it as JSON (null: none)",
    )
    parser.add_argument("--log-format", type=LogFormat, choices=list(LogFormat), default=LogFormat.AUTO)
    parser.add_argument("--version", action="version", version=f"tokenflowd {__version__}")
    return parser.parse_args(arguments)


async def _leftover(socket_path: Path | None, action: LeftoverAction) -> LeftoverEngine | None:
    path = socket_path or locations.user_socket()
    if action is LeftoverAction.SHOW:
        return leftover.find(locations.engine_record(path))
    paths = DaemonPaths.of(path)
    held = ControlSocket(paths.socket, paths.lock, None)  # no daemon comes up meanwhile; one that is up: ConflictError
    try:
        return await leftover.end(paths.record)
    finally:
        held.close()


def _tell(found: LeftoverEngine | None) -> None:
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    sys.stdout.flush()


def _absolute(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _ignore_quit() -> None:
    """A scheduler of SGLang that fails sends SIGQUIT to its parent; one whose own parent has died already, to us, whom
    the kernel has given it to (`become_subreaper`). Handled and not ignored: what is ignored, a new engine inherits."""
    structlog.get_logger().warning("sigquit_passed_over", why="an orphan of the engine's failed; to end: SIGTERM")


async def _run(options: argparse.Namespace) -> None:
    processes.become_subreaper()
    load = functools.partial(settings.load, as_service=options.system)
    socket_path = options.socket or (locations.system_socket() if options.system else None)
    daemon = Daemon(load(), socket_path, on_demand=options.on_demand, manager=ServiceManager())
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if daemon.ending.requested.is_set():
            daemon.abandon()
            os._exit(_FORCED_EXIT_CODE)
        daemon.ending.request(number.name)

    loop.add_signal_handler(signal.SIGQUIT, _ignore_quit)
    for number in _ENDING_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    if sys.stdin is not None and sys.stdin.isatty():
        loop.add_signal_handler(signal.SIGHUP, on_signal, signal.SIGHUP)  # its terminal has gone
    else:
        loop.add_signal_handler(signal.SIGHUP, daemon.reload, load)
    await daemon.run()


if __name__ == "__main__":
    main()

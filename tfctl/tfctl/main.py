"""Entry point of `tfctl`. Turns every way a command can end into an exit code; no traceback reaches a user."""

import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from tfctl.app import PROGRAM, build
from tfctl.commands import SUMMARIES
from tfctl.output import (
    INTERRUPTED,
    Look,
    OutputLostError,
    ReaderGoneError,
    Role,
    look_of,
    note,
    with_socket,
    write_json,
)
from tokenflow.errors import OperationError, TokenFlowError, UsageError
from tokenflow.wire import ErrorBody, ErrorDocument

DEBUG_ENV = "TOKENFLOW_DEBUG"


def main() -> None:
    """Console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    as_json = _wants_json(arguments)
    try:
        result = build()(args=list(arguments), prog_name=PROGRAM, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except ReaderGoneError:
        return 0
    except OutputLostError as error:
        note(f"error: cannot write to stdout: {error}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except TokenFlowError as error:
        if error.hint is not None:
            error.hint = with_socket(error.hint, _socket(arguments))
        return _report(error, as_json)
    except typer.Abort:
        return 1
    except typer.TyperException as error:
        return _report_usage(error, arguments, as_json)
    except Exception as error:
        if os.environ.get(DEBUG_ENV):
            raise
        detail = " ".join(str(error).split()) or "no details"
        return _report(
            OperationError(
                f"unexpected {type(error).__name__}: {detail}",
                hint=f"run it again with {DEBUG_ENV}=1 to see where, and report it",
            ),
            as_json,
        )


def _wants_json(arguments: Sequence[str]) -> bool:
    own = arguments[: list(arguments).index("--")] if "--" in arguments else arguments
    return "--json" in own


def _socket(arguments: Sequence[str]) -> Path | None:
    """The `--socket` of a command line that may not have been understood."""
    found: str | None = None
    for word, following in itertools.pairwise([*arguments, ""]):
        if word == "--":
            break
        if word == "--socket":
            found = following
        elif word.startswith("--socket="):
            found = word.partition("=")[2]
    return Path(found) if found else None


def _report(error: TokenFlowError, as_json: bool) -> int:
    try:
        _print_error(error.body(), as_json)
    except (ReaderGoneError, OutputLostError):
        pass
    return error.exit_code


def _report_usage(error: typer.TyperException, arguments: Sequence[str], as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    command = next((argument for argument in arguments if argument in SUMMARIES), None)
    path = context.command_path if context is not None else f"{PROGRAM} {command}" if command else PROGRAM
    if type(error).__name__ == "NoArgsIsHelpError":
        if not as_json:
            note(error.format_message())
            return error.exit_code
        usage = UsageError("a command is missing", hint=f"{path} --help")
        return _report(usage, as_json)
    parameter = getattr(error, "param", None)
    usage = UsageError(
        " ".join(error.format_message().split()).removesuffix(".").replace("Value error, ", ""),
        hint=f"{path} --help",
        field=getattr(parameter, "name", None),
    )
    return _report(usage, as_json)


def _print_error(body: ErrorBody, as_json: bool) -> None:
    if as_json:
        write_json(ErrorDocument(error=body))
        return
    look: Look = look_of(sys.stderr)
    note(f"{look.paint('error:', Role.BAD)} {body.message}")
    if body.hint:
        note(f"{look.paint('hint:', Role.STRONG)}  {body.hint}")


if __name__ == "__main__":
    main()

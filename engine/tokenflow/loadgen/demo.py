"""`python -m tokenflow.loadgen.demo`: brings the engine up, sends a burst of real streams, shows what became of them.

On a terminal the live view opens over the burst; elsewhere there is a line now and then. Both end with a table.
Exit code 0 only if every stream got its tokens.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tokenflow.errors import OperationError, TokenFlowError, UsageError
from tokenflow.loadgen.burst import BackgroundBurst
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.operate import Tfctl
from tokenflow.loadgen.plan import Workload, plan_streams
from tokenflow.loadgen.result import RunResult
from tokenflow.loadgen.run import LoadRun
from tokenflow.loadgen.table import stream_table, summary_lines
from tokenflow.wire import EngineInfo, EngineState

_WHAT_TO_LOOK_AT = "Watch RUNWAY: who has some to spare is paused for who has none. Enter: details, ?: keys, q: leave."
_PLAIN_WIDTH = 132  # a table in a log is not folded
_FULL_WIDTH = 100  # narrower terminals show the clients' side alone


def main(argv: Sequence[str] | None = None, tfctl: Tfctl | None = None) -> int:
    """The demo, from the arguments to the exit code. No traceback for what a user can cause."""
    options = _parse(argv)
    console = _console()
    try:
        return _demo(options, tfctl or Tfctl(), console)
    except TokenFlowError as error:
        console.print(f"error: {error.message}", style="red", markup=False)
        if error.hint:
            console.print(f"hint: {error.hint}", markup=False)
        return error.exit_code
    except KeyboardInterrupt:
        console.print("interrupted; what runs keeps running, see: tfctl status")
        return 130


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tokenflow.loadgen.demo", description=__doc__)
    parser.add_argument("--requests", type=int, default=12, help="streams in the burst (%(default)s)")
    parser.add_argument(
        "--rates", default="4:0.5,6:0.3,12:0.2", help="reading rates in tok/s: one, or a mix (%(default)s)"
    )
    parser.add_argument("--max-tokens", default="64-128", help="output length, N or LEAST-GREATEST (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed sends the same streams (%(default)s)")
    parser.add_argument("--profile", default="demo-cpu", help="profile to start (%(default)s)")
    parser.add_argument("--no-view", action="store_true", help="lines instead of the live view, also on a terminal")
    parser.add_argument("--stop-after", action="store_true", help="stop the engine at the end")
    return parser.parse_args(argv)


def _demo(options: argparse.Namespace, tfctl: Tfctl, console: Console) -> int:
    plans = plan_streams(_workload(options))
    exit_code = _bring_up(options.profile, tfctl, console)
    if exit_code != 0:
        return exit_code  # tfctl has said why and what to do
    endpoint = _endpoint(tfctl.status().engine)
    rates = ", ".join(f"{rate:g}" for rate in sorted({plan.rate_tok_s or 0.0 for plan in plans}))
    console.print(
        f"\nSending {len(plans)} streams at once to {endpoint.url} ({endpoint.model}), read at {rates} tok/s",
        highlight=False,
    )
    run = LoadRun(endpoint, plans)
    has_view = console.is_terminal and sys.stdin.isatty() and not options.no_view
    result, was_interrupted = _burst(run, tfctl if has_view else None, console)
    _report(result, tfctl, console)
    if options.stop_after:
        tfctl.show("stop")
    else:
        _farewell(tfctl.status().engine, console)
    if was_interrupted:
        return 130
    return 0 if all(stream.is_complete for stream in result.streams) else 1


def _workload(options: argparse.Namespace) -> Workload:
    least, dash, greatest = options.max_tokens.partition("-")
    try:
        lengths = int(least), int(greatest if dash else least)
    except ValueError as error:
        raise UsageError(
            f"{options.max_tokens!r} is no output length", hint="use 96 or 64-128", field="max-tokens"
        ) from error
    return Workload(
        request_count=options.requests,
        arrivals=f"burst:{max(options.requests, 1)}",
        rates=options.rates,
        output_tokens=f"uniform:{lengths[0]}:{lengths[1]}",
        seed=options.seed,
    )


def _bring_up(profile: str, tfctl: Tfctl, console: Console) -> int:
    """Sees to it that an engine serves: the one that runs, whatever its profile, else a new one. tfctl's exit code."""
    engine = tfctl.status().engine
    if engine.state is EngineState.STARTING:
        return tfctl.show("wait", "--for", "serving")
    if engine.state not in (EngineState.SERVING, EngineState.BUSY):
        return tfctl.show("start", profile)
    if engine.profile != profile:
        console.print(
            f"An engine runs already, under the profile {engine.profile} and not {profile}: taking it. "
            f"(To change: tfctl restart {profile})",
            highlight=False,
        )
    return 0


def _endpoint(engine: EngineInfo) -> Endpoint:
    if engine.url is None or engine.model is None:
        raise OperationError("the engine serves but tells no address and model", hint="look at: tfctl status")
    return Endpoint(url=engine.url, model=engine.model)


def _burst(run: LoadRun, tfctl_with_view: Tfctl | None, console: Console) -> tuple[RunResult, bool]:
    """The result, and whether somebody ended it early. Leaving the view early does not end it."""
    burst = BackgroundBurst(run, lambda line: console.print(line, highlight=False))
    try:
        if tfctl_with_view is not None:
            tfctl_with_view.show("top", "--say", _WHAT_TO_LOOK_AT)
            if not burst.is_over:
                console.print("The streams are still running; Ctrl-C ends them.")
        burst.narrate()
        return burst.wait(), False
    except KeyboardInterrupt:
        burst.cancel()
        return burst.wait(), True


def _report(result: RunResult, tfctl: Tfctl, console: Console) -> None:
    rows = tfctl.rows(stream.rid for stream in result.streams if stream.rid is not None)
    console.print()
    columns = rows if console.width >= _FULL_WIDTH else None
    console.print(stream_table(result.streams, columns, is_plain=not console.is_terminal))
    console.print()
    for line in summary_lines(result.summary):
        console.print(line, highlight=False)
    console.print(
        f"engine's own count: {sum(row.generated_tokens for row in rows.values())} tokens in {len(rows)} requests, "
        f"{sum(row.stall_count for row in rows.values())} stalls, {sum(row.stall_s for row in rows.values()):.1f} s",
        highlight=False,
    )
    for stream in result.streams:
        if stream.error is not None:
            console.print(f"stream {stream.index}: {stream.error}", style="red", markup=False)


def _farewell(engine: EngineInfo, console: Console) -> None:
    command = _typed("tfctl")
    stop = "make stop" if Path("Makefile").is_file() else f"{command} stop"
    pid = "" if engine.pid is None else f", pid {engine.pid}"
    console.print(
        f"\nStill running: tokenflowd and the engine ({engine.url}, profile {engine.profile}{pid})\n"
        f"Look at it:    {command} ps, {command} top\n"
        f"Stop it:       {stop}",
        highlight=False,
        markup=False,
    )


def _typed(name: str) -> str:
    """How to type a command of this environment: by name where the shell finds it, else by its path."""
    beside = Path(sys.executable).parent / name
    found = shutil.which(name)
    if not beside.exists() or (found is not None and Path(found) == beside):
        return name
    return str(beside.relative_to(Path.cwd())) if beside.is_relative_to(Path.cwd()) else str(beside)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_PLAIN_WIDTH)


if __name__ == "__main__":
    sys.exit(main())

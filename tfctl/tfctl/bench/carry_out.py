"""What `tfctl bench` does once its options are read. Imports the load generator, and with it aiohttp."""

import asyncio
import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime

import msgspec

from tfctl.bench.options import BenchOptions
from tfctl.bench.plan import BenchPlan, bench_plan
from tfctl.bench.record_files import RecordFiles
from tfctl.operations import reporter
from tfctl.output import INTERRUPTED, note, write_json, write_line
from tfctl.session import Session
from tfctl.views.bench import error_lines, render_run
from tokenflow.errors import OperationError, TimedOutError, UsageError
from tokenflow.loadgen.bench_driver import BenchDriver, SeedResult, watch
from tokenflow.loadgen.bench_figures import bench_run, details
from tokenflow.loadgen.bench_record import BenchDocument, BenchRun
from tokenflow.loadgen.burst import progress_line
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.server import checked_url, find_model
from tokenflow.wire import StatusDocument

_BAR_INTERVAL_S = 0.25
_LINE_INTERVAL_S = 10.0
_LATE_MS = 100.0


def carry_out(session: Session, options: BenchOptions) -> int:
    """Everything from the checks to the report. Gives the exit code; raises what stands in the way of a run."""
    plan = bench_plan(options)
    endpoint = _endpoint(session, options)
    endpoint = msgspec.structs.replace(endpoint, model=asyncio.run(find_model(endpoint)))
    _allow_connections()
    runs: list[BenchRun] = []
    lost: list[OperationError] = []
    with RecordFiles(options.output, options.requests_out) as files:

        def take(result: SeedResult) -> None:
            run = _record(plan, endpoint, result)
            runs.append(run)
            try:
                files.write_run(run, details(result.streams) if options.has_details else {})
                files.write_requests(result.seed, result.streams)
            except OperationError as error:  # the report is still to come: nothing is thrown away for a full disk
                lost.append(error)

        driver = BenchDriver(endpoint, plan.streams, warm_up_count=options.warm_up_count, has_acks=options.has_acks)
        with _narrator(session) as (narrate, interval_s):
            ending = asyncio.run(_execute(driver, take, lambda: watch(driver, narrate, interval_s), session))
    _report(session, runs)
    for error in lost[:1]:
        note(f"error: {error.message}")
        note(f"hint:  {error.hint}")
    if ending is not None:
        return ending
    is_whole = not lost and all(run.completed == run.num_prompts for run in runs)
    return 0 if is_whole else OperationError.exit_code


async def _execute(
    driver: BenchDriver,
    take: Callable[[SeedResult], None],
    watching: Callable[[], Coroutine[None, None, None]],
    session: Session,
) -> int | None:
    """The exit code of a run that was ended early, None otherwise. A second Ctrl-C leaves at once."""
    loop = asyncio.get_running_loop()
    endings: list[int] = []

    def end(exit_code: int, text: str) -> None:
        endings.append(exit_code)
        loop.remove_signal_handler(signal.SIGINT)
        if session.is_chatty:
            note(text)
        driver.cancel()

    loop.add_signal_handler(signal.SIGINT, end, INTERRUPTED, "ending; what was measured is kept")
    limit_s = session.options.timeout_s
    timer = None
    if limit_s is not None:
        timer = loop.call_later(limit_s, end, TimedOutError.exit_code, f"the time limit of {limit_s:g} s is over")
    watcher = asyncio.create_task(watching())
    try:
        await driver.execute(take)
    finally:
        watcher.cancel()
        loop.remove_signal_handler(signal.SIGINT)
        if timer is not None:
            timer.cancel()
    return endings[0] if endings else None


def _allow_connections() -> None:
    """A burst of thousands is thousands of open files: as many as this user may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _endpoint(session: Session, options: BenchOptions) -> Endpoint:
    """The server that is named, else the engine that the daemon runs."""
    url = options.url
    if url is None:
        engine = session.client().get("/v1/status", StatusDocument).engine
        if engine.url is None:
            raise OperationError(
                f"no engine serves (it is {engine.state})", hint="start it: tfctl start; or name a server: --url URL"
            )
        url = engine.url
    api_key = None
    if options.api_key_env is not None:
        api_key = os.environ.get(options.api_key_env)
        if not api_key:
            raise UsageError(
                f"the environment variable {options.api_key_env} is not set",
                hint=f"export {options.api_key_env}=...",
                field="api-key-env",
            )
    return Endpoint(
        url=checked_url(url),
        model=options.model or "",
        api=options.api,
        api_key=api_key,
        idle_timeout_s=options.idle_timeout_s,
        exact_counts=not options.counts_chunks,
        has_claims=options.has_claims,
        claimed_rate_tok_s=options.claimed_rate_tok_s,
        extra_body={"ignore_eos": True} if options.ignores_eos else {},
    )


def _record(plan: BenchPlan, endpoint: Endpoint, result: SeedResult) -> BenchRun:
    facts = msgspec.structs.replace(
        plan.facts,
        model=endpoint.model,
        seed=result.seed,
        is_interrupted=result.is_interrupted,
        unackable_count=result.unackable_count,
    )
    return bench_run(result.streams, facts, datetime.now())


@contextlib.contextmanager
def _narrator(session: Session) -> Iterator[tuple[Callable[[BenchDriver], None], float]]:
    """A bar on a terminal, a line now and then elsewhere; both on stderr."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    with reporter(session) as report:

        def narrate(driver: BenchDriver) -> None:
            run = driver.current
            if run is None:
                return
            ended_count = sum(recorder.outcome is not None for recorder in run.recorders)
            title = "warm-up" if driver.current_seed is None else f"seed {driver.current_seed}"
            report(f"{title}: {progress_line(run.recorders, run.elapsed_s())}", ended_count / len(run.recorders))

        yield narrate, _BAR_INTERVAL_S if is_terminal else _LINE_INTERVAL_S


def _report(session: Session, runs: list[BenchRun]) -> None:
    if session.as_json:
        write_json(BenchDocument(runs=runs))
        return
    for index, run in enumerate(runs):
        if index:
            write_line()
        for line in render_run(run, session.look):
            write_line(line)
    for run in runs:
        _warn(session, run)


def _warn(session: Session, run: BenchRun) -> None:
    errors = error_lines(run)
    if errors:
        note(f"seed {run.stream_seed}: {run.failed} of {run.stream_sent_count} requests failed")
        for line in errors:
            note(line)
    if session.options.quiet:
        return
    if run.stream_unackable_count:
        note(
            f"warning: {run.stream_unackable_count} streams could not be acked: "
            "the server gave no X-TokenFlow-Ack-Token with them"
        )
    if run.stream_dispatch_lag_p99_ms is not None and run.stream_dispatch_lag_p99_ms > _LATE_MS:
        note(
            f"warning: requests were sent up to {run.stream_dispatch_lag_max_ms:.0f} ms late; "
            "this machine is too busy for this load, and the figures say so"
        )

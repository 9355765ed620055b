"""`tfctl profile measure`"""

import os
import platform
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfctl.client import Client, wait_until_gone
from tfctl.daemon import bring_up
from tfctl.documents import ProfileWrittenDocument
from tfctl.operations import Reporter, follow, reporter
from tfctl.options import engine_args
from tfctl.output import note, write_json, write_line
from tfctl.profile.client_key import client_key
from tfctl.profile.create import warn_if_unseen
from tfctl.profile.hand import Hand
from tfctl.profile.writing import check_name, parse, replace_file, set_values, write_profile
from tfctl.profiles import check_profiles, read_profile, valid_contents
from tfctl.session import Session
from tokenflow.errors import (
    ConfigurationError,
    ConflictError,
    DaemonUnreachableError,
    HostError,
    UsageError,
)
from tokenflow.version import __version__
from tokenflow.wire import (
    EngineState,
    OperationDocument,
    StartRequest,
    StatusDocument,
    StopRequest,
)

if TYPE_CHECKING:
    from tokenflow.measure.measurement import Measured, Options

_DEFAULT = "demo-cpu"
_STOP_LIMIT_S = 60.0
_SETTLING_S = 3.0
_BUSY_RATIO = 0.5  # of the CPUs, before we begin
_SCATTER_RATIO = 0.15  # of the steps about the formula, from which on they are not to be trusted


def measure(
    ctx: typer.Context,
    profile: Annotated[str, typer.Option("--profile", metavar="NAME", help="Whose engine is measured.")] = _DEFAULT,
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", show_default=False, help="Write a profile of another name."),
    ] = None,
    window_s: Annotated[
        float, typer.Option("--window", metavar="S", min=0.2, max=60, help="Seconds for each figure.")
    ] = 3.0,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            "--api-key-env",
            metavar="NAME",
            show_default=False,
            help="Variable with the engine's key; else from the profile's file.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", show_default=False, help="Fewer figures: a minute, and coarser.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", show_default=False, help="Write it here, and not where profiles are."),
    ] = None,
) -> None:
    """Measure what the engine can do, and write it into the profile.

    The engine is started where none runs, and stopped again. It must be idle. Words behind `--` are handed to SGLang.
    """
    session = Session(ctx)
    target = check_name(name or profile)
    _check_output(output, target)
    key = client_key(valid_contents(profile)["engine"], api_key_env)
    run_options = _options(window_s, is_quick=quick, api_key=key)
    if session.is_chatty and (busy := busy_with()) is not None:
        note(f"warning: {busy}; the figures will be lower than the engine's own")
    with reporter(session) as report, _engine(session, profile, engine_args(ctx), report) as client:
        status = client.get("/v1/status", StatusDocument)
        found = _measure(client, status, report, run_options)
    text = _written(profile, target, found, status)
    origin, path = _write(target, text, output)
    if session.as_json:
        contents = tomllib.loads(text)
        write_json(ProfileWrittenDocument(name=target, origin=origin, path=str(path), contents=contents))
        return
    _show(session, found, path, origin)


def _check_output(output: Path | None, name: str) -> None:
    """Before minutes of measuring. Raises UsageError."""
    if output is None:
        return
    if output.name != f"{name}.toml":
        raise UsageError(
            f"a profile lies in a file of its name: {name}.toml", hint=f"--output {output.parent / name}.toml, or --as"
        )
    if not os.access(output.parent, os.W_OK):
        raise UsageError(f"{output.parent} cannot be written to", hint=f"ls -ld {output.parent}", field="output")


def _write(name: str, text: str, output: Path | None) -> tuple[str, Path]:
    """(origin, path)"""
    if output is None:
        return write_profile(name, text, is_replacing=True)
    replace_file(output, text)
    return "file", output.absolute()


def _options(window_s: float, *, is_quick: bool, api_key: str | None) -> "Options":
    """Raises HostError where the load generator's packages are missing."""
    try:
        from tokenflow.measure.measurement import Options
    except ImportError as error:
        raise HostError(
            f"measuring needs {error.name or 'packages'} that are not installed here",
            hint="pip install 'tokenflow-serving[bench]'",
        ) from error
    return Options(window_s=window_s, is_quick=is_quick, cycles=3 if is_quick else 6, api_key=api_key)


@contextmanager
def _engine(session: Session, profile: str, arguments: list[str], report: Reporter) -> Iterator[Client]:
    """The daemon of an idle engine under that profile. What had to be started for it is stopped afterwards."""
    client, spawned = session.find(), None
    if client is None:
        client, spawned = bring_up(session)
    status = client.get("/v1/status", StatusDocument)
    runs = status.engine.state not in (EngineState.STOPPED, EngineState.FAILED)
    try:
        if not runs:
            request = StartRequest(profile=profile, engine_args=arguments)
            follow(client, client.post("/v1/engine/start", request, OperationDocument), report, None)
        else:
            _check_idle(_settled(client), profile, arguments)
        yield client
    finally:
        if not runs:
            report("stopping the engine", None)
            _stop(client, report, is_daemon_ours=spawned is not None)


def _stop(client: Client, report: Reporter, *, is_daemon_ours: bool) -> None:
    daemon = None
    try:
        daemon = client.get("/v1/status", StatusDocument).daemon
        operation = client.post("/v1/engine/stop", StopRequest(daemon=is_daemon_ours), OperationDocument)
        follow(client, operation, report, _STOP_LIMIT_S)
    except DaemonUnreachableError:
        pass  # it has ended between two questions, as it was told to
    if is_daemon_ours:
        wait_until_gone(client.path, daemon.pid if daemon else None, _STOP_LIMIT_S)


def _settled(client: Client) -> StatusDocument:
    """The status, once what ended a moment ago has gone from it: telemetry comes a few times a second."""
    deadline_s = time.monotonic() + _SETTLING_S
    while True:
        status = client.get("/v1/status", StatusDocument)
        is_working = _live_count(status) or status.engine.state is EngineState.BUSY
        if not is_working or time.monotonic() > deadline_s:
            return status
        time.sleep(0.1)


def _live_count(status: StatusDocument) -> int:
    capacity = status.capacity
    return capacity.running_count + capacity.waiting_count + capacity.preempted_count


def _check_idle(status: StatusDocument, profile: str, arguments: list[str]) -> None:
    """Raises ConflictError."""
    engine, live_count = status.engine, _live_count(status)
    if engine.profile != profile or arguments:
        raise ConflictError(
            f"the engine runs profile {engine.profile}, and {profile} is to be measured"
            if engine.profile != profile
            else "the engine runs already, so it cannot be given other arguments",
            hint=f"tfctl stop --drain 60; then: tfctl profile measure --profile {profile}",
        )
    if live_count or engine.state is not EngineState.SERVING:
        raise ConflictError(
            f"the engine is {engine.state} with {live_count} requests; only an idle one can be measured",
            hint="see them: tfctl ps; then again: tfctl profile measure",
        )


def _measure(client: Client, status: StatusDocument, report: Reporter, options: "Options") -> "Measured":
    """In the mode that is in force: where that is enforce, copies ahead run along, as they will. No more streams are
    sent than there are slots, so nobody is paused."""
    import asyncio  # not for `profile list`

    from tokenflow.measure.measurement import measure as measure_engine

    assert status.engine.url is not None
    host = Hand(client)
    return asyncio.run(measure_engine(status.engine.url, status.engine.model or "", host, report, options))


def _written(base: str, name: str, found: "Measured", status: StatusDocument) -> str:
    """The profile's text with what was measured. Raises ConfigurationError: a fault of ours, and nothing is lost."""
    from tokenflow.measure.measurement import performance

    made = {
        "at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "engine": f"SGLang {status.engine.version or 'of unknown version'}",
        "tokenflow": __version__,
        "machine": machine(),
    }
    _, text, _ = read_profile(base)
    document = parse(text)
    document.pop("performance", None)
    edited = set_values(document, {"name": name, "performance": performance(found, made)})
    _check(name, edited)
    return edited


def _check(name: str, text: str) -> None:
    import tempfile

    folder = tempfile.mkdtemp(prefix="tfctl-measured-")
    path = Path(folder) / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    (checked,) = check_profiles([str(path)])
    if checked.faults:
        raise ConfigurationError(
            "\n".join(fault.text(str(path)) for fault in checked.faults), hint=f"what was measured is in {path}"
        )
    path.unlink()
    path.parent.rmdir()


def busy_with() -> str | None:
    """What the machine does beside us, where that is much; None where it is not, or cannot be told."""
    try:
        load, cpu_count = os.getloadavg()[0], os.cpu_count() or 1
    except OSError:
        return None
    return f"something else runs here (load {load:.1f} on {cpu_count} CPUs)" if load > _BUSY_RATIO * cpu_count else None


def machine() -> str:
    """`8 x Some CPU` and the GPUs, for a record: no host name."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    found = [f"{os.cpu_count()} x {model}"]
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("Model")]
    return ", ".join(found)


def _show(session: Session, found: "Measured", path: Path, origin: str) -> None:
    from tokenflow.measure.measurement import decode_fit

    name = path.stem
    if session.options.quiet:
        write_line(str(path))
        return
    best = max(found.decode, key=lambda sample: sample.tok_s)
    largest = found.prefill[-1]
    rows: list[tuple[str, str]] = [
        ("capacity", f"{best.tok_s:.1f} tok/s ({best.streams} streams of {best.context_tokens} tokens)"),
        ("prefill", f"{largest.new_tokens / largest.seconds:.0f} tok/s ({largest.new_tokens} tokens)"),
    ]
    if found.swaps is not None:
        for direction, word in (("d2h", "to the host"), ("h2d", "to the device")):
            rate = found.swaps.bandwidth(direction)
            rows.append((direction, "not seen" if rate is None else f"{rate / 1e9:.2f} GB/s {word}"))
        for key in ("evict_s", "load_s", "schedule_s"):
            value: Any = getattr(found.swaps, key)
            if value is not None:
                rows.append((f"{key.removesuffix('_s')} p99", f"{1000 * value:.1f} ms"))
    for key, text in rows:
        write_line(f"{key:<13} {text}")
    for text in found.skipped:
        note(f"not measured: {text}")
    scatter = decode_fit(found)[1]
    if scatter > _SCATTER_RATIO:
        note(
            f"warning: decode steps scatter by {scatter:.0%} about their formula: was something else running? "
            f"Again, and longer: tfctl profile measure --profile {name} --window 10"
        )
    write_line(f"written to {path}")
    warn_if_unseen(session, origin)
    if origin == "file":
        write_line(session.next_step(f"check it: tfctl profile validate {path}"))
    else:
        write_line(session.next_step(f"use it: tfctl restart {name}; look at it: tfctl profile show {name}"))

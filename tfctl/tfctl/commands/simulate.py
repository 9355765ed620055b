"""`tfctl simulate`"""

import math
from pathlib import Path
from typing import Annotated

import typer

from tfctl.options import Command
from tfctl.session import Session

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
NOBODY = "none"


def _positive(value: float | None) -> float | None:
    if value is not None and not 0 < value < math.inf:
        raise typer.BadParameter(f"{value:g} is not a number above 0")
    return value


def _share(value: float | None) -> float | None:
    if value is not None and not 0 < value <= 1:
        raise typer.BadParameter(f"{value:g} is not above 0 and at most 1")
    return value


def _slowdown(value: float | None) -> float | None:
    if value is not None and not 1 <= value < math.inf:
        raise typer.BadParameter(f"{value:g} is not a factor of 1 or more")
    return value


@app.command(cls=Command)
def simulate(
    ctx: typer.Context,
    gpu: Annotated[
        str, typer.Option("--gpu", metavar="NAME", help="h200, h100, a100, l40s, b200, rtx4090, rtxpro6000, a6000.")
    ] = "h200",
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="llama3-8b, qwen2.5-7b, qwen2.5-32b and more.")
    ] = "llama3-8b",
    calibrate: Annotated[
        Path | None,
        typer.Option("--calibrate", metavar="FILE", show_default=False, help="Measured step times and bandwidths."),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            show_default=False,
            help="tokenflow, paper, guide, fcfs, chunked, sglang-priority, andes, mlfq, pascal, disaggregated. "
            "Repeat for more. Default: tokenflow and fcfs.",
        ),
    ] = None,
    arrivals: Annotated[
        str,
        typer.Option("--arrivals", metavar="LAW", help="burst:K[:GAP_S], poisson:RATE, gamma:RATE:SHAPE, trace:FILE."),
    ] = "burst:200",
    request_count: Annotated[
        int | None,
        typer.Option(
            "--requests", "-n", metavar="N", min=1, show_default=False, help="Default: the burst, the trace, or 300."
        ),
    ] = None,
    input_tokens: Annotated[
        str | None,
        typer.Option(
            "--input-tokens",
            metavar="LAW",
            show_default=False,
            help="normal:MEAN[:SD], fixed:N, uniform:A:B, trace or trace:FILE. Default: normal:512, or the trace's.",
        ),
    ] = None,
    output_tokens: Annotated[
        str | None,
        typer.Option(
            "--output-tokens", metavar="LAW", show_default=False, help="The same. Default: normal:1024, or the trace's."
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            min=1,
            show_default=False,
            help="What clients ask for, all that schedulers know of lengths. Default: each answer's true length.",
        ),
    ] = None,
    rates: Annotated[
        str, typer.Option("--rates", metavar="MIX", help="Reading rates in tok/s: 6, 15:0.4,20:0.6, or none.")
    ] = "6",
    speedup: Annotated[
        float, typer.Option("--speedup", metavar="F", callback=_positive, help="Replay a trace F times as fast.")
    ] = 1.0,
    kv_tokens: Annotated[
        int | None,
        typer.Option("--kv-tokens", metavar="N", min=1, show_default=False, help="KV memory of the device."),
    ] = None,
    mem_fraction: Annotated[
        float | None,
        typer.Option(
            "--mem-fraction",
            metavar="F",
            callback=_share,
            show_default=False,
            help="The same as a share of device memory, weights included (0.88).",
        ),
    ] = None,
    host_gb: Annotated[float, typer.Option("--host-gb", metavar="GB", min=0, help="Host memory for KV.")] = 256.0,
    page_tokens: Annotated[int, typer.Option("--page-tokens", metavar="N", min=1, help="Tokens in a page of KV.")] = 1,
    max_running: Annotated[int, typer.Option("--max-running", metavar="N", min=1, help="Slots of the batch.")] = 256,
    chunk_tokens: Annotated[
        int | None,
        typer.Option(
            "--chunk-tokens",
            metavar="N",
            min=1,
            show_default=False,
            help="Prefill tokens in a step (the policy's own).",
        ),
    ] = None,
    has_mixed_steps: Annotated[
        bool,
        typer.Option(
            "--mixed-steps", show_default=False, help="Ours: who runs gets a token in steps with prefill too."
        ),
    ] = False,
    link_gbs: Annotated[
        float | None,
        typer.Option(
            "--link-gbs", metavar="N", callback=_positive, show_default=False, help="Host link in GB/s, each direction."
        ),
    ] = None,
    interference_ratio: Annotated[
        float | None,
        typer.Option(
            "--interference",
            metavar="F",
            callback=_slowdown,
            show_default=False,
            help="A step takes F times as long while copies run.",
        ),
    ] = None,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="HOW", help="Loads: layers (SGLang), ahead, or none.")
    ] = "layers",
    step_overhead_ms: Annotated[
        float, typer.Option("--step-overhead-ms", metavar="MS", min=0, help="The scheduler's time in each step.")
    ] = 0.0,
    decision_pause_ms: Annotated[
        float,
        typer.Option("--decision-pause-ms", metavar="MS", min=0, help="Faster: rest after a decision to do nothing."),
    ] = 0.0,
    tune: Annotated[
        list[str] | None,
        typer.Option("--tune", metavar="KEY=VALUE", show_default=False, help="A value of the policy; repeat for more."),
    ] = None,
    goodput: Annotated[
        str | None,
        typer.Option("--goodput", metavar="SLOS", show_default=False, help="ttft:MS,tbt:MS (ttft:500,tbt:200)."),
    ] = None,
    seeds: Annotated[
        list[int] | None, typer.Option("--seed", metavar="S", show_default=False, help="Repeat for more runs (1).")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", show_default=False, help="Write a report with plots.")
    ] = None,
    requests_out: Annotated[
        Path | None,
        typer.Option("--requests-out", metavar="FILE", show_default=False, help="Write a JSON line for each request."),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option("--events", metavar="FILE", show_default=False, help="Write a JSON line for each decision."),
    ] = None,
    has_timing: Annotated[
        bool, typer.Option("--timing", show_default=False, help="Say when it was made and how long it took.")
    ] = False,
) -> None:
    """Try policies on a GPU that is not here.

    The real policy decides, step by step, on an engine whose step times come from published measurements. All
    policies see the same requests. The same options and seeds give the same output, byte for byte.
    """
    from tfctl.simulate.carry_out import carry_out
    from tfctl.simulate.options import SimulateOptions
    from tokenflow.sim.settings import LoadOverlap

    if overlap not in list(LoadOverlap):
        raise typer.BadParameter(f"{overlap!r} is not one of {', '.join(LoadOverlap)}", param_hint="'--overlap'")
    options = SimulateOptions(
        gpu=gpu,
        model=model,
        calibrate=calibrate,
        policies=tuple(dict.fromkeys(policies or ["tokenflow", "fcfs"])),
        arrivals=arrivals,
        request_count=request_count,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        max_tokens=max_tokens,
        rates=None if rates == NOBODY else rates,
        speedup=speedup,
        kv_tokens=kv_tokens,
        mem_fraction=mem_fraction,
        host_gb=host_gb,
        page_tokens=page_tokens,
        max_running=max_running,
        chunk_tokens=chunk_tokens,
        has_mixed_steps=has_mixed_steps,
        link_gbs=link_gbs,
        interference_ratio=interference_ratio,
        overlap=LoadOverlap(overlap),
        step_overhead_ms=step_overhead_ms,
        decision_pause_ms=decision_pause_ms,
        tune=tuple(tune or ()),
        goodput=goodput,
        seeds=tuple(dict.fromkeys(seeds or [1])),
        html=html,
        requests_out=requests_out,
        events=events,
        has_timing=has_timing,
    )
    raise typer.Exit(carry_out(Session(ctx), options))

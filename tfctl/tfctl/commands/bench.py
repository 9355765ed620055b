"""`tfctl bench`"""

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from tfctl.options import Command, seconds
from tfctl.session import Session
from tokenflow.errors import HostError
from tokenflow.loadgen.endpoint import Api
from tokenflow.policy.buffer import MAX_RATE_TOK_S, MIN_RATE_TOK_S

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
NOBODY = "none"


def _factor(value: float) -> float:
    if not 0 < value < math.inf:
        raise typer.BadParameter(f"{value:g} is not a number above 0")
    return value


def _claim(text: str | None) -> str | None:
    if text is None or text == NOBODY:
        return text
    try:
        rate_tok_s = float(text)
    except ValueError:
        rate_tok_s = math.nan
    if not MIN_RATE_TOK_S <= rate_tok_s <= MAX_RATE_TOK_S:
        raise typer.BadParameter(f"{text!r} is neither none nor from {MIN_RATE_TOK_S:g} to {MAX_RATE_TOK_S:g} tok/s")
    return text


@app.command(cls=Command)
def bench(
    ctx: typer.Context,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", show_default=False, help="The server. Default: our engine.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", show_default=False, help="Default: the first it lists.")
    ] = None,
    api: Annotated[Api, typer.Option("--api", help="The route.")] = Api.CHAT,
    arrivals: Annotated[
        str | None,
        typer.Option(
            "--arrivals",
            metavar="LAW",
            show_default=False,
            help="burst:K[:GAP_S], poisson:RATE, gamma:RATE:SHAPE or trace:FILE. Default: all at once.",
        ),
    ] = None,
    request_count: Annotated[
        int | None,
        typer.Option(
            "--requests", "-n", metavar="N", min=1, show_default=False, help="Default: the burst, the trace, or 16."
        ),
    ] = None,
    rates: Annotated[
        str, typer.Option("--rates", metavar="MIX", help="Reading rates in tok/s: 6, 15:0.4,20:0.6, or none.")
    ] = "6",
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", metavar="FILE", show_default=False, help="A prompt a line, or JSON lines."),
    ] = None,
    input_tokens: Annotated[
        str | None,
        typer.Option(
            "--input-tokens",
            metavar="LAW",
            show_default=False,
            help="About fixed:N, uniform:A:B, normal:MEAN[:SD] or trace. Default: short prompts, or the trace's.",
        ),
    ] = None,
    output_tokens: Annotated[
        str | None,
        typer.Option(
            "--output-tokens",
            metavar="LAW",
            show_default=False,
            help="The same laws. Default: uniform:64:128, or the trace's.",
        ),
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", show_default=False, help="Answers of exactly that length (SGLang, vLLM).")
    ] = False,
    speedup: Annotated[
        float, typer.Option("--speedup", metavar="F", callback=_factor, help="Replay a trace F times as fast.")
    ] = 1.0,
    has_acks: Annotated[
        bool, typer.Option("--acks", show_default=False, help="Readers report their progress to the server.")
    ] = False,
    claim: Annotated[
        str | None,
        typer.Option(
            "--claim", metavar="RATE", callback=_claim, show_default=False, help="Tell the server this rate, or none."
        ),
    ] = None,
    seeds: Annotated[
        list[int] | None, typer.Option("--seed", metavar="S", show_default=False, help="Repeat for more runs (1).")
    ] = None,
    warm_up_count: Annotated[
        int, typer.Option("--warmup", metavar="N", min=0, help="Short requests first, not measured.")
    ] = 1,
    goodput: Annotated[
        str | None,
        typer.Option(
            "--goodput", metavar="SLOS", show_default=False, help="ttft:MS, tpot:MS, tbt:MS, e2el:MS, with commas."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", show_default=False, help="Append a JSON line for each run."),
    ] = None,
    requests_out: Annotated[
        Path | None,
        typer.Option("--requests-out", metavar="FILE", show_default=False, help="Write a JSON line for each request."),
    ] = None,
    has_details: Annotated[
        bool, typer.Option("--output-details", show_default=False, help="Lists of every request in --output too.")
    ] = False,
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="TEXT", show_default=False, help="For the record.")
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option("--api-key-env", metavar="NAME", show_default=False, help="Environment variable with the key."),
    ] = None,
    counts_chunks: Annotated[
        bool,
        typer.Option(
            "--count-chunks", show_default=False, help="A chunk is a token: where continuous_usage_stats is refused."
        ),
    ] = False,
    idle_timeout_s: Annotated[
        float, typer.Option("--idle-timeout", metavar="S", callback=seconds, help="Give a silent stream up.")
    ] = 120.0,
) -> None:
    """Send streams to a server and measure what their readers get.

    For any OpenAI-compatible server. Ctrl-C, and --timeout, end it early; what was measured is still written.
    Exit code 1 if a request failed.
    """
    session = Session(ctx)
    try:
        from tfctl.bench.carry_out import carry_out
        from tfctl.bench.options import BenchOptions
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "aiohttp":
            raise
        raise HostError(
            "the load generator's package (aiohttp) is not installed here",
            hint=f"install it: {sys.executable} -m pip install 'tokenflow-serving[bench]'",
        ) from None
    options = BenchOptions(
        url=url,
        model=model,
        api=api,
        arrivals=arrivals,
        request_count=request_count,
        rates=None if rates == NOBODY else rates,
        prompts=prompts,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        ignores_eos=ignore_eos,
        speedup=speedup,
        has_acks=has_acks,
        has_claims=claim != NOBODY,
        claimed_rate_tok_s=None if claim in (None, NOBODY) else float(claim or 0),
        seeds=tuple(dict.fromkeys(seeds or [1])),
        warm_up_count=warm_up_count,
        goodput=goodput,
        output=output,
        requests_out=requests_out,
        has_details=has_details,
        tag=tag,
        api_key_env=api_key_env,
        counts_chunks=counts_chunks,
        idle_timeout_s=idle_timeout_s,
    )
    raise typer.Exit(carry_out(session, options))

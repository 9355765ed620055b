"""Everything that is measured on one engine, in order, and what comes of it as `[performance]` of a profile."""

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tokenflow.errors import TokenFlowError
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.measure.engine_facts import EngineFacts, read_facts
from tokenflow.measure.plane import fit_plane
from tokenflow.measure.points import decode_points, prefill_sizes
from tokenflow.measure.streams import DecodeSample, PrefillSample, endpoint_of, measure_decode, measure_prefill
from tokenflow.measure.swaps import Operator, SwapSamples, measure_swaps

Report = Callable[[str, float], None]
"""Takes what is being measured and the share that is done."""
_COPY_LIMIT_S = 120.0
_PREFILL_REPEATS = 3
_SWAP_WEIGHT = 4  # in the progress, of one decode point


class Host(Operator, Protocol):
    """The operator's hand, and the tunables with which pauses are possible and copies whole."""

    def pausing(self) -> AbstractContextManager[None]:
        """Within it the engine enforces and writes nothing ahead. Raises TokenFlowErrors where it cannot."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    window_s: float = 3.0
    cycles: int = 6
    is_quick: bool = False
    seed: int | None = None  # of the prompts; None: others each time, since the engine may still hold those of the last
    api_key: str | None = None


@dataclass(slots=True)
class Measured:
    """`skipped` says what could not be measured, and why."""

    facts: EngineFacts
    decode: list[DecodeSample] = field(default_factory=list)
    prefill: list[PrefillSample] = field(default_factory=list)
    swaps: SwapSamples | None = None
    copies: dict[str, Any] | None = None
    skipped: list[str] = field(default_factory=list)

    @property
    def capacity_tok_s(self) -> float:
        """Γ: the most that was made per second."""
        return max(sample.tok_s for sample in self.decode)


async def measure(url: str, model: str, host: Host, report: Report, options: Options) -> Measured:
    """Of an idle engine. Raises OperationError where streams fail, TimedOutError and others of the daemon."""
    endpoint = endpoint_of(url, model, options.api_key)
    facts = await read_facts(url, endpoint.authorization())
    rng = random.Random(options.seed)
    points = decode_points(facts, is_quick=options.is_quick)
    sizes = prefill_sizes(facts, is_quick=options.is_quick)
    total, done = len(points) + len(sizes) + _SWAP_WEIGHT + 2, 0
    found = Measured(facts)
    report("warming up", 0.0)
    await measure_prefill(endpoint, min(32, sizes[-1]), 2, rng)
    for size in sizes:
        done += 1
        report(f"prefill of {size} tokens", done / total)
        found.prefill.append(await measure_prefill(endpoint, size, _PREFILL_REPEATS, rng))
    for point in points:
        done += 1
        report(f"{point.streams} streams of {point.prompt_tokens} tokens", done / total)
        found.decode.append(await measure_decode(endpoint, point, options.window_s, rng))
        await _until_idle(host)
    report("pauses and resumes", (done + 1) / total)
    await _try_swaps(endpoint, host, found, options, rng)
    report("copies between host and device", (done + 1 + _SWAP_WEIGHT) / total)
    await _try_copies(found, 0.3 if options.is_quick else 1.0)
    return found


async def _until_idle(host: Host) -> None:
    """Streams that were given up leave the engine a moment later; they must not be in the next point."""
    for _ in range(200):
        capacity = host.status().capacity
        if not (capacity.running_count or capacity.waiting_count or capacity.preempted_count):
            return
        await asyncio.sleep(0.05)


async def _try_swaps(endpoint: Endpoint, host: Host, found: Measured, options: Options, rng: random.Random) -> None:
    """Bandwidth and tails. Without a host pool, or where enforcing is ruled out, the rest is worth having."""
    if not found.facts.has_host_pool:
        found.skipped.append("pauses and resumes: the engine has no host pool (--enable-hierarchical-cache)")
        return
    prompt_tokens = min(1024, found.facts.context_tokens // 3, found.facts.pool_tokens // 3)
    room_tokens = min(found.facts.context_tokens, found.facts.pool_tokens) - prompt_tokens - 16
    try:
        with host.pausing():
            found.swaps = await measure_swaps(endpoint, host, prompt_tokens, room_tokens, options.cycles, rng)
    except TokenFlowError as error:
        found.skipped.append(f"pauses and resumes: {error.message}")
    await _until_idle(host)


async def _try_copies(found: Measured, seconds: float) -> None:
    """In a process of its own: torch and a CUDA context stay out of this one."""
    command = [sys.executable, "-m", "tokenflow.measure.copies", str(seconds)]
    try:
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, check=True, timeout=_COPY_LIMIT_S, stdin=subprocess.DEVNULL
        )
        found.copies = json.loads(done.stdout)
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        found.skipped.append(f"copies with both directions at once: {type(error).__name__}")


def decode_fit(found: Measured) -> tuple[list[float], float]:
    """Seconds fixed, per stream and per token of context, and the mean relative distance of the steps from that."""
    features = [[1.0, sample.streams, sample.streams * sample.context_tokens] for sample in found.decode]
    return fit_plane(features, [sample.step_s for sample in found.decode])


def performance(found: Measured, made: dict[str, Any]) -> dict[str, Any]:
    """`[performance]` of a profile. `made`: when, with what and where."""
    source = f"tfctl profile measure on {made['machine']}, {made['at']}"
    decode, decode_error = decode_fit(found)
    prefill, prefill_error = fit_plane(
        [[1.0, sample.new_tokens] for sample in found.prefill], [sample.seconds for sample in found.prefill]
    )
    origin = {"how": "measured", "source": source}
    tables: dict[str, Any] = {
        "made": made,
        "decode": _step(origin, decode[0], decode[1], decode[2], decode_error),
        "prefill": _step(origin, prefill[0], 0.0, prefill[1], prefill_error),
    }
    if found.swaps is not None:
        tables |= _copy_tables(found.swaps, found.copies, origin)
        tails = {"evict_s": found.swaps.evict_s, "load_s": found.swaps.load_s, "schedule_s": found.swaps.schedule_s}
        tables["tails"] = origin | {key: _rounded(value) for key, value in tails.items() if value is not None}
        if found.swaps.bytes_per_token is not None:
            bytes_per_token = round(found.swaps.bytes_per_token)
            tables["kv"] = origin | {"bytes_per_token": bytes_per_token, "pool_tokens": found.facts.pool_tokens}
    points = [
        {"streams": sample.streams, "context_tokens": sample.context_tokens, "tok_s": _rounded(sample.tok_s)}
        for sample in found.decode
    ]
    return tables | {"capacity": origin | {"points": points}}


def _step(origin: dict[str, Any], fixed_s: float, row_s: float, token_s: float, error: float) -> dict[str, Any]:
    figures = {"fixed_s": _rounded(fixed_s), "row_s": _rounded(row_s), "token_s": _rounded(token_s)}
    return origin | figures | {"error_ratio": round(error, 3)}


def _copy_tables(swaps: SwapSamples, copies: dict[str, Any] | None, origin: dict[str, Any]) -> dict[str, Any]:
    """What the engine's own copies reached; at once: as much less as plain copies of 64 MiB lose."""
    tables = {}
    for direction in ("d2h", "h2d"):
        bytes_s = swaps.bandwidth(direction)
        if bytes_s is None:
            continue
        tables[direction] = origin | {"bytes_s": _rounded(bytes_s)}
        if copies is not None:
            ratio = copies["both_bytes_s"][direction] / copies["alone_bytes_s"][direction]
            tables[direction]["both_bytes_s"] = _rounded(bytes_s * min(ratio, 1.0))
    return tables


def _rounded(value: float) -> float:
    """Four digits."""
    return float(f"{value:.4g}")

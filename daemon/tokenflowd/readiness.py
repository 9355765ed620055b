"""Following an engine from its spawn until it serves."""

import asyncio
from pathlib import Path

import aiohttp

from tokenflow import link
from tokenflow.errors import TimedOutError
from tokenflow.wire import PluginState
from tokenflowd.engine_process import EngineProcess
from tokenflowd.logfile import LogReader
from tokenflowd.preflight import Report
from tokenflowd.progress import StartProgress

_TURN_S = 0.25
_PROBE_LIMIT_S = 2.0
# Once SGLang is up, the plugin is given this long to be heard from in both processes. Later the engine serves without.
_PLUGIN_GRACE_S = 3.0


async def wait_until_serving(engine: EngineProcess, log_path: Path, limit_s: float, report: Report) -> None:
    """Raises TimedOutError after `limit_s`. Does not notice the engine's end: see `EngineProcess.death`."""
    try:
        async with asyncio.timeout(limit_s):
            await _follow(engine, log_path, report)
    except TimeoutError as error:
        raise TimedOutError(
            f"the engine was not ready within {limit_s:g} s and has been ended",
            hint="tfctl logs -n 50; a larger model needs a larger `start_limit_s` in tokenflow.toml",
        ) from error


async def _follow(engine: EngineProcess, log_path: Path, report: Report) -> None:
    progress = StartProgress()
    report(progress.latest.text, progress.latest.ratio)
    reader = LogReader(log_path)
    ready_s: float | None = None
    loop = asyncio.get_running_loop()
    try:
        while True:
            turn_s = loop.time()
            _feed(progress, reader, report)
            reply = await engine.ask_frontend(link.Ping(), _TURN_S)
            is_ready = reply is not None and bool(reply.is_ready)
            if is_ready or progress.is_fired_up:
                ready_s = ready_s or loop.time()
                is_plugin_out = reply is not None and reply.plugin is not PluginState.ACTIVE
                if is_ready and engine.telemetry is not None:
                    return
                if (is_plugin_out or loop.time() - ready_s >= _PLUGIN_GRACE_S) and await _answers(engine.plan.url):
                    return
            await asyncio.sleep(max(0.0, turn_s + _TURN_S - loop.time()))
    finally:
        reader.close()


def _feed(progress: StartProgress, reader: LogReader, report: Report) -> None:
    while lines := reader.read():
        for line in lines:
            if progress.feed(line):
                report(progress.latest.text, progress.latest.ratio)


async def _answers(url: str) -> bool:
    """Whether the OpenAI API is up. Lists models: a health probe would generate a token."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PROBE_LIMIT_S)) as session,
            session.get(f"{url}/v1/models") as response,
        ):
            return response.status in (200, 401, 403)  # with an API key the refusal shows that it serves
    except (aiohttp.ClientError, TimeoutError):
        return False

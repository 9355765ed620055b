"""A real Prometheus, where one is to be had: on the PATH, or where .ci/prometheus has unpacked it."""

import asyncio
import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "docs" / "monitoring"
_UNPACKED = ROOT / ".build" / "prometheus" / "usr" / "bin"
_LIMIT_S = 60.0


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`; skips the test where it is missing."""
    found = shutil.which(name) or shutil.which(name, path=str(_UNPACKED))
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt install prometheus; without root: .ci/prometheus)")
    return found


def promtool(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("promtool"), *arguments], input=text, capture_output=True, text=True, timeout=_LIMIT_S, cwd=MONITORING
    )


class Prometheus:
    """A server that scrapes one target five times a second."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def get(self, path: str, **parameters: str) -> dict:
        async with self._session.get(f"{self._url}/api/v1/{path}", params=parameters) as response:
            document = await response.json()
            assert document["status"] == "success", document
            return document["data"]

    async def query(self, expression: str) -> list[dict]:
        return (await self.get("query", query=expression))["result"]

    async def query_until(self, expression: str) -> list[dict]:
        """The first answer that is not empty; AssertionError if there is none within a minute."""
        try:
            async with asyncio.timeout(_LIMIT_S):
                while not (result := await self.query(expression)):
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"no data: {expression}") from None
        return result


@contextlib.asynccontextmanager
async def scraping(target: str, rules: str) -> AsyncIterator[Prometheus]:
    """`target` is HOST:PORT; `rules` the contents of a rules file."""
    binary = program("prometheus")
    with tempfile.TemporaryDirectory(prefix="tfp-") as name:
        folder = Path(name)
        (folder / "rules.yml").write_text(rules)
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}\n"
            "rule_files: [rules.yml]\n"
            f"scrape_configs: [{{job_name: tokenflow, static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        # Port 0 is not told anywhere but in the log.
        server = await asyncio.create_subprocess_exec(
            binary,
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            "--web.listen-address=127.0.0.1:0",
            "--log.format=json",
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )
        drained: asyncio.Task[None] | None = None
        try:
            url = await _address(server)
            drained = asyncio.create_task(_drain(server))
            async with aiohttp.ClientSession() as session:
                await _is_ready(session, url)
                yield Prometheus(session, url)
        finally:
            server.terminate()
            await server.wait()
            if drained is not None:
                await drained


async def _address(server: asyncio.subprocess.Process) -> str:
    assert server.stderr is not None
    async with asyncio.timeout(_LIMIT_S):
        async for line in server.stderr:
            entry = json.loads(line)
            if entry.get("msg") == "Listening on":
                return f"http://{entry['address']}"
    raise AssertionError("Prometheus ended before it listened")


async def _is_ready(session: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(_LIMIT_S):
        while True:
            async with session.get(f"{url}/-/ready") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.05)


async def _drain(server: asyncio.subprocess.Process) -> None:
    assert server.stderr is not None
    async for _ in server.stderr:
        pass

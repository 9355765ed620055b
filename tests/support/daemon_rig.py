"""A daemon in this process, an engine of a few lines in its own, a client on the control socket."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import psutil

from tokenflow import locations
from tokenflowd import settings as daemon_settings
from tokenflowd.daemon import Daemon
from tokenflowd.settings import Settings

ENGINE = [sys.executable, str(Path(__file__).parent / "scripted_engine.py")]
PROFILE = """
name = "{name}"
[model]
path = "demo"
served_name = "scripted"
[engine]
device = "cpu"
port = 0
args = ["--script", "{script}"]
[tunables]
default_rate_tok_s = 5.0
[classes.reading]
rate_tok_s = 6.0
"""


def write_profile(name: str, script: str) -> Path:
    path = locations.user_config_folder() / "profiles" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PROFILE.format(name=name, script=script))
    return path


class Client:
    """One request a call; answers come as (status, document)."""

    def __init__(self, socket: Path) -> None:
        self.session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)))

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict]:
        async with self.session.request(method, f"http://daemon{path}", json=body, headers=headers) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> dict:
        status, document = await self.ask("GET", path)
        assert status == 200, document
        return document

    async def finished(self, document: dict) -> dict:
        """The operation once it has ended."""
        async with asyncio.timeout(30):
            while document["state"] == "running":
                document = await self.get(f"/v1/operations/{document['id']}?wait=5")
        return document

    async def start(self, profile: str = "scripted", *engine_args: str) -> dict:
        status, document = await self.ask(
            "POST", "/v1/engine/start", {"profile": profile, "engine_args": list(engine_args)}
        )
        assert status == 202, document
        return await self.finished(document)

    async def stop(self, **body: object) -> dict:
        status, document = await self.ask("POST", "/v1/engine/stop", body)
        assert status == 202, document
        return await self.finished(document)

    async def engine_becomes(self, state: str) -> dict:
        """The status in which the engine is in `state`; watches instead of polling."""
        async with (
            asyncio.timeout(20),
            self.session.get("http://daemon/v1/status?watch=0.1", timeout=aiohttp.ClientTimeout()) as response,
        ):
            async for line in response.content:
                document = json.loads(line)
                if document["engine"]["state"] == state:
                    return document
        raise AssertionError("the watch ended")


class Rig:
    """A running daemon and its client."""

    def __init__(self, daemon: Daemon, client: Client) -> None:
        self.daemon = daemon
        self.client = client
        self.running = asyncio.create_task(daemon.run())

    async def ended(self) -> None:
        async with asyncio.timeout(20):
            await self.running


@contextlib.asynccontextmanager
async def run_daemon(on_demand: bool = False, **overrides: object) -> AsyncIterator[Rig]:
    daemon = Daemon(make_settings(**overrides), on_demand=on_demand)
    client = Client(daemon.paths.socket)
    rig = Rig(daemon, client)
    try:
        await socket_answers(daemon.paths.socket, rig.running)
        yield rig
    finally:
        daemon.ending.request("the test's end")
        await client.session.close()
        await asyncio.gather(rig.running, return_exceptions=True)


def make_settings(**overrides: object) -> Settings:
    quick = {"start_limit_s": 15.0, "stop_grace_s": 5.0, "farewell_s": 1.0, "default_profile": "scripted"}
    return daemon_settings.load(**{**quick, **overrides})


async def socket_answers(path: Path, running: "asyncio.Future[None]") -> None:
    """Returns when the daemon listens; raises what ended it if it did not come up."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(OSError):  # not there yet, or bound and not listening
                _, writer = await asyncio.open_unix_connection(str(path))
                writer.close()
                return
            if running.done():
                running.result()
            await asyncio.sleep(0.01)


def scripted_processes(home: Path) -> list[psutil.Process]:
    """Living processes of scripted engines that were started under `home`."""
    found = []
    for process in psutil.process_iter(["cmdline", "status", "environ"]):
        is_ours = (process.info["environ"] or {}).get("XDG_RUNTIME_DIR", "").startswith(str(home))
        if is_ours and ENGINE[1] in process.info["cmdline"] and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found

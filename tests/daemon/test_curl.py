"""The examples of docs/api.md, as they stand there, with a real curl and a real shell."""

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest
from daemon_rig import Rig

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
SETUP, *EXAMPLES = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)[0].splitlines()


def test_the_page_has_examples():
    assert SETUP.startswith("S=")
    assert len(EXAMPLES) >= 8
    assert all(re.match(r"curl -sN? --unix-socket \$S ", example) for example in EXAMPLES)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_every_example_does_what_it_is_there_for(rig: Rig):
    await rig.client.start()
    await rig.client.ask("PATCH", "/v1/tunables", {"changes": {"quantum_s": 3}})
    await event_told(rig)
    for example in EXAMPLES:
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", f"set -euo pipefail; {SETUP}\n{example}", stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(30):
            out, _ = await shell.communicate()
        lines = out.decode().splitlines()
        assert lines, example
        if "/metrics" in example:
            assert lines == ["tokenflow_overload 0.0"]
            continue
        for line in lines:
            document = json.loads(line)
            assert document.get("error") is None, example
            assert document.get("schema", "tokenflow.").startswith("tokenflow.")
        assert ("watch" in example) == (len(lines) == 2)
    assert (await rig.client.get("/v1/status"))["engine"]["state"] in ("draining", "stopped")


async def event_told(rig: Rig) -> None:
    """An event comes with the engine's next message."""
    async with asyncio.timeout(20):
        while True:
            async with rig.client.session.get("http://daemon/v1/events?kind=tuned") as response:
                if await response.text():
                    return
            await asyncio.sleep(0.02)

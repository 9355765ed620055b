"""SGLang's own time limits on the real engine: what TokenFlow lets wait on purpose does not run into them."""

import asyncio
import time

from engine_rig import Rig
from engine_streams import FAST, live

from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.run import LoadRun

LIMIT_S = 30.0
TOKENS = 400


def test_a_pause_counts_neither_as_waiting_nor_as_running(own_engine: Rig):
    own_engine.environment["SGLANG_REQ_RUNNING_TIMEOUT"] = str(LIMIT_S)
    own_engine.environment["SGLANG_REQ_WAITING_TIMEOUT"] = str(LIMIT_S)
    own_engine.start(*FAST, "--max-running-requests", "1")
    assert own_engine.tfctl("mode", "enforce").returncode == 0
    result = asyncio.run(_held_for(own_engine, LIMIT_S + 5.0))
    (stream,) = result.streams
    assert (stream.error, stream.token_count) == (None, TOKENS)
    own_engine.stop()
    own_engine.assert_nothing_left()


async def _held_for(rig: Rig, seconds: float):
    endpoint = Endpoint(url=rig.url, model=rig.model, extra_body={"ignore_eos": True})
    plan = StreamPlan(index=0, arrival_s=0.0, prompt="Tell me of the sea.", rate_tok_s=None, max_tokens=TOKENS)
    streaming = asyncio.create_task(LoadRun(endpoint, [plan]).execute())
    rid = await asyncio.to_thread(live, rig, "running", tokens=5)
    assert (await asyncio.to_thread(rig.tfctl, "pause", rid)).returncode == 0
    await asyncio.to_thread(rig.row_when, rid, lambda row: row["state"] == "preempted")
    await asyncio.to_thread(time.sleep, seconds)
    assert (await asyncio.to_thread(rig.tfctl, "resume", rid)).returncode == 0
    return await asyncio.wait_for(streaming, 60.0)

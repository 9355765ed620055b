"""Streams without end against one server, for `chaos.py`: one line of JSON on stdout for each stream that has ended.

    python bench/chaos_client.py URL MODEL STREAMS TOKENS

`began_s` and `ended_s` are CLOCK_MONOTONIC. A server that is not there is asked again.
"""

import asyncio
import json
import sys
import time

from tokenflow.loadgen.client import open_session, run_stream
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.recorder import StreamRecorder
from tokenflow.loadgen.result import Outcome

_PAUSE_S = 0.5


async def one_after_the_other(endpoint: Endpoint, number: int, tokens: int) -> None:
    async with open_session(endpoint) as session:
        while True:
            plan = StreamPlan(
                index=number, arrival_s=0.0, prompt=f"Chapter {number}.", rate_tok_s=20.0, max_tokens=tokens
            )
            recorder, began_s = StreamRecorder(plan), time.monotonic()
            await run_stream(session, endpoint, recorder, time.monotonic)
            result = recorder.result()
            if result.outcome is Outcome.UNREACHABLE or result.http_status == 503:
                await asyncio.sleep(_PAUSE_S)  # it is starting, or its admission is closed
                continue
            is_whole = result.is_complete and result.token_count == tokens
            line = {
                "began_s": began_s,
                "ended_s": time.monotonic(),
                "token_count": result.token_count,
                "problem": None
                if is_whole
                else f"{result.outcome.value}: {result.error} ({result.token_count} tokens)",
            }
            print(json.dumps(line), flush=True)
            if not is_whole:
                await asyncio.sleep(_PAUSE_S)


async def main() -> None:
    url, model, streams, tokens = sys.argv[1:]
    endpoint = Endpoint(url=url, model=model, extra_body={"ignore_eos": True})
    await asyncio.gather(*(one_after_the_other(endpoint, number, int(tokens)) for number in range(int(streams))))


if __name__ == "__main__":
    asyncio.run(main())

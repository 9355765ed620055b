"""Readers that report their progress: `POST /tokenflow/v1/streams/{rid}/ack` while the stream runs."""

import asyncio
from collections.abc import Callable
from urllib.parse import quote

import aiohttp

from tokenflow.loadgen.endpoint import ACK_TOKEN_HEADER, Endpoint
from tokenflow.loadgen.recorder import StreamRecorder

ACK_INTERVAL_S = 0.5
_ACK_LIMIT_S = 5.0


class AckReporter:
    """Acks each stream as its reader reads on, every `interval_s` at most, and only what is new.

    An ack that fails is counted in the stream's record and never ends the stream: the next one says it all again.
    `unackable_count` is the number of streams whose server gave no token to ack with.
    """

    def __init__(self, endpoint: Endpoint, *, interval_s: float = ACK_INTERVAL_S) -> None:
        self.unackable_count = 0
        self._endpoint = endpoint
        self._interval_s = interval_s

    def follow(
        self,
        session: aiohttp.ClientSession,
        recorder: StreamRecorder,
        token: str | None,
        clock_s: Callable[[], float],
    ) -> asyncio.Task[None] | None:
        """Acks the stream from now on, until the task is cancelled; None where it cannot be acked."""
        if recorder.rid is None or token is None:
            self.unackable_count += 1
            return None
        url = f"{self._endpoint.root()}/tokenflow/v1/streams/{quote(recorder.rid, safe='')}/ack"
        return asyncio.create_task(self._report(session, recorder, url, token, clock_s))

    async def _report(
        self,
        session: aiohttp.ClientSession,
        recorder: StreamRecorder,
        url: str,
        token: str,
        clock_s: Callable[[], float],
    ) -> None:
        headers = self._endpoint.authorization() | {ACK_TOKEN_HEADER: token}
        limit = aiohttp.ClientTimeout(total=_ACK_LIMIT_S)
        while True:
            await asyncio.sleep(self._interval_s)
            consumed_tokens = int(recorder.reader.read_at(clock_s()))
            if consumed_tokens <= recorder.acked_tokens:
                continue
            body = {"consumed_tokens": consumed_tokens}
            try:
                async with session.post(url, json=body, headers=headers, timeout=limit) as response:
                    recorder.ack(consumed_tokens, is_accepted=response.status < 300)
            except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
                recorder.ack(consumed_tokens, is_accepted=False)

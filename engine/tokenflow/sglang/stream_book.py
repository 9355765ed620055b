"""Which streams clients may ack or look at: the open ones, and those that have ended lately."""

import hmac
import time
from collections import OrderedDict

from tokenflow.sglang.streams import Choice, StreamContext

KEEP_ENDED_S = 300.0
KEEP_ENDED_COUNT = 10_000


class StreamBook:
    """Streams by the id of their response and by the ids of its choices. Used on the event loop only."""

    def __init__(self) -> None:
        self.open: set[StreamContext] = set()
        self._by_rid: dict[str, StreamContext] = {}
        self._ended: OrderedDict[str, tuple[float, StreamContext]] = OrderedDict()

    def add(self, stream: StreamContext) -> None:
        self.open.add(stream)
        self._by_rid[stream.rid] = stream

    def add_choice(self, stream: StreamContext, rid: str, is_streamed: bool) -> None:
        """SGLang has been given this request for that response."""
        stream.choice(rid, is_streamed)
        if stream in self.open:
            self._by_rid[rid] = stream

    def close(self, stream: StreamContext) -> bool:
        """True the first time."""
        if stream not in self.open:
            return False
        self.open.remove(stream)
        stream.manager = stream.task = None
        now_s = time.monotonic()
        for rid in (stream.rid, *stream.choices):
            if self._by_rid.pop(rid, None) is not None:
                self._ended[rid] = (now_s, stream)
        while self._ended:
            ended_s, _ = next(iter(self._ended.values()))
            if now_s - ended_s <= KEEP_ENDED_S and len(self._ended) <= KEEP_ENDED_COUNT:
                break
            self._ended.popitem(last=False)
        return True

    def find(self, rid: str) -> StreamContext | None:
        """The open or lately ended stream that goes by this id."""
        stream = self._by_rid.get(rid)
        if stream is not None:
            return stream
        ended = self._ended.get(rid)
        return None if ended is None else ended[1]


def owns(stream: StreamContext, token: str) -> bool:
    """Whether that is the stream's token; takes the same time for every wrong one."""
    return hmac.compare_digest(stream.ack_token.encode(), token.encode("utf-8", "surrogatepass"))


def choice_of(stream: StreamContext, rid: str) -> Choice | None:
    """The choice that is meant: the one of that id, or the only one of the response. None where it is not clear."""
    found = stream.choices.get(rid)
    if found is not None:
        return found
    streamed = [choice for choice in stream.choices.values() if choice.is_streamed]
    return streamed[0] if len(streamed) == 1 else None

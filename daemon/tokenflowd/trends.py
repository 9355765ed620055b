"""What goes wrong slowly, told from one engine's telemetry over the last minute: thrash, zombies,
starvation, a full host pool; preemption storms (`storm`).

Pure: every stamp comes with the telemetry. A sample is taken every few seconds, however often telemetry comes.
"""

from collections import deque
from dataclasses import dataclass

from tokenflow.link import StreamState, Telemetry
from tokenflow.policy.states import Reason, RequestState
from tokenflowd.storm import Storm, StormWatch

WINDOW_S = 60.0
SAMPLE_EVERY_S = 5.0
THRASH_PREEMPTIONS = 6
"""A stream that was paused so often within the window..."""
THRASH_TOKENS_EACH = 4
"""...and made fewer tokens than this each time gets nowhere: moving it costs more than it makes."""
ZOMBIE_TOKENS_LEAST = 100
ZOMBIE_RATIO = 0.05
"""Made for clients that have left, of all that was made."""
HOST_FULL_RATIO = 0.01
"""Room for new copies in the host pool, of the whole pool."""
_STILL = (RequestState.WAITING, RequestState.PREEMPTED)


@dataclass(slots=True)
class _Mark:
    at_s: float
    preemption_count: int
    generated_tokens: int


@dataclass(frozen=True, slots=True)
class Waiter:
    """The request that has waited longest, to be started or to go on."""

    rid: str
    state: RequestState
    age_s: float


@dataclass(frozen=True, slots=True)
class Thrash:
    rid: str
    preemption_count: int
    generated_tokens: int


class Trends:
    """Fed with every telemetry message of one engine. Figures are of the window that ends with the latest."""

    def __init__(self) -> None:
        self._marks: dict[str, deque[_Mark]] = {}
        self._still_since_s: dict[str, float] = {}
        self._made: deque[tuple[float, float, int]] = deque()  # stamp, tokens made until then, zombies among them
        self._made_tokens = 0.0
        self._last_s: float | None = None
        self._next_sample_s = 0.0
        self._full_since_s: float | None = None
        self._storms = StormWatch()
        self.longest_wait: Waiter | None = None
        self.starved_count = 0
        self.thrash: Thrash | None = None

    def take(self, telemetry: Telemetry, starvation_s: float) -> None:
        """`starvation_s`: who waits for longer is counted as starved."""
        now_s = telemetry.sent_s
        if self._last_s is not None:
            self._made_tokens += telemetry.quality.raw_tok_s * max(0.0, now_s - self._last_s)
        self._last_s = now_s
        self._look_at_host_pool(telemetry, now_s)
        if now_s < self._next_sample_s:
            return
        self._next_sample_s = now_s + SAMPLE_EVERY_S
        self._made.append((now_s, self._made_tokens, telemetry.quality.zombie_tokens_total))
        while now_s - self._made[0][0] > WINDOW_S:
            self._made.popleft()
        live = [stream for stream in telemetry.streams if stream.state.is_live]
        self._storms.take(telemetry, self._made_tokens)
        self._look_at_waits(live, now_s, starvation_s)
        self._look_for_thrash(live, now_s)

    def _look_at_waits(self, live: list[StreamState], now_s: float, starvation_s: float) -> None:
        since = self._still_since_s
        self._still_since_s = {}
        waiters = []
        for stream in live:
            if stream.state not in _STILL or stream.reason is Reason.PREEMPTED_OPERATOR:
                continue
            is_new = stream.state is RequestState.WAITING
            since_s = stream.arrival_s if is_new else since.get(stream.rid, now_s)
            self._still_since_s[stream.rid] = since_s
            waiters.append(Waiter(stream.rid, stream.state, now_s - since_s))
        self.longest_wait = max(waiters, key=lambda waiter: waiter.age_s, default=None)
        self.starved_count = sum(waiter.age_s > starvation_s for waiter in waiters)

    def _look_for_thrash(self, live: list[StreamState], now_s: float) -> None:
        marks, self._marks, self.thrash = self._marks, {}, None
        for stream in live:
            if not stream.preemption_count:
                continue
            kept = self._marks[stream.rid] = marks.get(stream.rid, deque())
            kept.append(
                _Mark(now_s, stream.preemption_count, stream.buffer.generated_tokens + stream.buffer.hidden_tokens)
            )
            while now_s - kept[0].at_s > WINDOW_S:
                kept.popleft()
            paused = kept[-1].preemption_count - kept[0].preemption_count
            made = kept[-1].generated_tokens - kept[0].generated_tokens
            is_worse = self.thrash is None or paused > self.thrash.preemption_count
            if paused >= THRASH_PREEMPTIONS and made < THRASH_TOKENS_EACH * paused and is_worse:
                self.thrash = Thrash(stream.rid, paused, made)

    def _look_at_host_pool(self, telemetry: Telemetry, now_s: float) -> None:
        pools = telemetry.kv_pools
        is_full = (
            pools is not None
            and pools.host_total_tokens > 0
            and pools.host_unused_tokens + pools.host_only_tokens < HOST_FULL_RATIO * pools.host_total_tokens
        )
        if not is_full:
            self._full_since_s = None
        elif self._full_since_s is None:
            self._full_since_s = now_s

    @property
    def storm(self) -> Storm | None:
        """The preemptions of the last minute, where KV is full and they are many."""
        return self._storms.now

    @property
    def host_full_s(self) -> float:
        """How long the host pool has had no room for new copies."""
        return 0.0 if self._full_since_s is None or self._last_s is None else self._last_s - self._full_since_s

    @property
    def zombie_tokens(self) -> int:
        """Made for clients that have left, where that is more than a few and a few percent; else 0."""
        if len(self._made) < 2:
            return 0
        (_, made_before, before), (_, made_now, now) = self._made[0], self._made[-1]
        zombies = now - before
        return zombies if zombies >= max(ZOMBIE_TOKENS_LEAST, ZOMBIE_RATIO * (made_now - made_before)) else 0

"""SGLang's own time limits (off by default), where TokenFlow lets streams wait on purpose."""

import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

MAX_KEPT_COUNT = 1000


class TimeLimits:
    """Asked by rank 0 at each look that SGLang takes, which is once a turn.

    The limit on waiting (`SGLANG_REQ_WAITING_TIMEOUT`) is for new requests that wait for the engine, not for streams
    that were taken out. The limit on running (`SGLANG_REQ_RUNNING_TIMEOUT`) SGLang counts from the first step on, and
    so with every pause in it: a stream that is slowed to the pace of its reader would meet a limit that it never met.
    """

    def __init__(self) -> None:
        self._out_since_s: dict[str, float] = {}
        self._paused_s: dict[str, float] = {}  # of the pauses that are over

    def due(
        self, aborts: Iterable[Any], scheduler: Any, is_held: Callable[[str], bool], *, is_enforcing: bool
    ) -> list[Any]:
        """Those of SGLang's `aborts` for a limit that stand.

        A pause counts to its end, also where the mode has changed meanwhile; one of stock scheduling never does.
        """
        if not _has_limit():
            return list(aborts)
        now_s = time.perf_counter()
        waiting = {req.rid: req for req in scheduler.waiting_queue}
        batches = [batch for batch in scheduler._collect_inflight_batches() if batch is not None]
        running = {req.rid: req for batch in batches for req in batch.reqs}
        self._follow(waiting, running, now_s, is_enforcing=is_enforcing)
        held = {rid for rid in waiting if is_enforcing and is_held(rid)}
        return [abort for abort in aborts if self._is_due(abort.rid, waiting, running, held, now_s)]

    def _follow(self, waiting: dict[str, Any], running: dict[str, Any], now_s: float, *, is_enforcing: bool) -> None:
        if is_enforcing:
            for rid, req in waiting.items():
                if req.output_ids:
                    self._out_since_s.setdefault(rid, now_s)
        for rid in [rid for rid in self._out_since_s if rid not in waiting]:
            self._paused_s[rid] = self._paused_s.get(rid, 0.0) + now_s - self._out_since_s.pop(rid)
        if len(self._paused_s) > MAX_KEPT_COUNT:  # between two chunks of its prefill a stream may be in neither
            self._paused_s = {rid: s for rid, s in self._paused_s.items() if rid in waiting or rid in running}

    def _is_due(
        self,
        rid: str,
        waiting: dict[str, Any],
        running: dict[str, Any],
        held: set[str],
        now_s: float,
    ) -> bool:
        if rid in waiting:
            return rid not in self._out_since_s and rid not in held
        req, paused_s = running.get(rid), self._paused_s.get(rid, 0.0)
        if req is None or not paused_s:
            return True
        return now_s - float(req.time_stats.forward_entry_time) - paused_s > _running_limit_s()


@cache  # of the environment, for the life of the engine; asked at every turn
def _has_limit() -> bool:
    from sglang.srt.environ import envs

    return bool(envs.SGLANG_REQ_WAITING_TIMEOUT.get() > 0 or envs.SGLANG_REQ_RUNNING_TIMEOUT.get() > 0)


def _running_limit_s() -> float:
    from sglang.srt.environ import envs

    return float(envs.SGLANG_REQ_RUNNING_TIMEOUT.get())

"""SGLang's own time limits (off by default), where TokenFlow lets streams wait on purpose."""

import time
from collections.abc import Callable, Iterable
from typing import Any


def due(
    aborts: Iterable[Any],
    waiting: Iterable[Any],
    is_held: Callable[[str], bool],
    has_run_s: Callable[[str, float], float | None],
) -> list[Any]:
    """Those of SGLang's `aborts` for a limit that stand.

    The limit on waiting (`SGLANG_REQ_WAITING_TIMEOUT`) is for new requests that wait for the engine, not for streams
    that were taken out. The limit on running (`SGLANG_REQ_RUNNING_TIMEOUT`) SGLang counts from the first step on, and
    so with every pause in it: a stream that is slowed to the pace of its reader would meet a limit that it never met.
    """
    queued = {req.rid: req for req in waiting}
    found = []
    for abort in aborts:
        req = queued.get(abort.rid)
        if req is not None:
            is_due = not req.output_ids and not is_held(abort.rid)
        else:
            run_s = has_run_s(abort.rid, time.perf_counter())
            is_due = run_s is None or run_s > _running_limit_s()
        if is_due:
            found.append(abort)
    return found


def _running_limit_s() -> float:
    from sglang.srt.environ import envs

    return float(envs.SGLANG_REQ_RUNNING_TIMEOUT.get())

"""The way back to one state when tensor-parallel ranks have come to differ: nobody runs, and there is no KV.

Ranks that choose different batches wait for each other for ever or compute nonsense. So everybody is taken out on all
ranks in the same turn, all KV is forgotten, and the requests wait in the same order: each is computed again from its
tokens, which all ranks have. It costs time and no stream.
"""

from typing import Any

from tokenflow.sglang import annotation
from tokenflow.sglang.actuator import Actuator


def start_over(scheduler: Any, last_batch: Any, actuator: Actuator) -> None:
    """Before the next batch is chosen; `last_batch` is the one that SGLang's loop would merge into the running ones."""
    actuator.drain()
    reqs = _live_requests(scheduler, last_batch)
    for req in reqs:
        _take_out(scheduler, req)
    scheduler.running_batch.reqs = []
    scheduler.running_batch.batch_is_full = False
    scheduler.last_batch = scheduler.chunked_req = None
    _forget_kv(scheduler)
    for req in reqs:
        actuator.requeue(req)
    scheduler.waiting_queue.sort(key=_arrival)


def _live_requests(scheduler: Any, last_batch: Any) -> list[Any]:
    """Whoever holds a row, as SGLang's own pausing of an engine collects them."""
    found = {id(req): req for req in scheduler.running_batch.reqs}
    if last_batch is not None and last_batch.forward_mode.is_extend():
        found |= {id(req): req for req in last_batch.reqs}
    if scheduler.chunked_req is not None:
        found[id(scheduler.chunked_req)] = scheduler.chunked_req
    waiting = {id(req) for req in scheduler.waiting_queue}
    return [req for key, req in found.items() if key not in waiting and not req.finished()]


def _take_out(scheduler: Any, req: Any) -> None:
    from sglang.srt.mem_cache import common

    if req.kv.holds_kv:
        common.release_kv_cache(req, scheduler.tree_cache, checkpoint=False)
    req.reset_for_retract()


def _forget_kv(scheduler: Any) -> None:
    """As SGLang's flush does, once the copies under way have arrived."""
    tree = scheduler.tree_cache
    if tree.cache_controller is not None:
        tree.writing_check(write_back=True)
        loads = tree.cache_controller.ack_load_queue
        for ack in loads:
            ack.finish_event.synchronize()
        tree.loading_check(finish_count=len(loads))
    tree.reset()
    scheduler.req_to_token_pool.clear()
    scheduler.token_to_kv_pool_allocator.clear()
    scheduler.req_to_token_pool.reset_aux_cache_allocator()


def _arrival(req: Any) -> tuple[float, str]:
    """The same on all ranks: the stamp came with the request."""
    note = annotation.read(req.sampling_params)
    return (note.arrival_s if note is not None else 0.0, req.rid)

"""A second SGLang plugin, for tests alone: runs in the engine's scheduler, plants faults in ours, aborts requests in a
chosen state, and reports what the scheduler holds.

It is found as any plugin is, by an entry point: `probe_control` writes the metadata into a folder on PYTHONPATH.
Orders come and answers go as JSON files in the folder that ENGINE_PROBE names.
"""

import functools
import json
import multiprocessing
import os
import pkgutil
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

ENV = "ENGINE_PROBE"
ORDERS, ANSWERS = "orders.json", "answers.json"
ABORT_SPACING_S = 0.1


class PlantedError(Exception):
    """Raised where a fault was planted."""


def register():
    folder = os.environ.get(ENV)
    if not folder or multiprocessing.parent_process() is None or "sglang.srt.managers.scheduler" not in sys.modules:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    probe = Probe(Path(folder))
    target = "sglang.srt.managers.scheduler.Scheduler.get_next_batch_to_run"
    HookRegistry.register(target, probe.before_next_batch, HookType.BEFORE)


class Probe:
    def __init__(self, folder):
        self._folder = folder
        self._stamp = None
        self._number = 0
        self._faults = {}
        self._aborts = Counter()
        self._next_abort_s = 0.0
        self._is_report_wanted = False
        self._is_dirty = False
        self._next_answer_s = 0.0
        self._planted = set()
        self._problems = []
        self._hits = Counter()
        self._aborted = Counter()
        self._aborted_rids = []
        self._taken = None
        self._report = None
        self._late_acks_s = 0.0
        self._guards = []
        self._is_forgiving = False
        self._watch_guards()
        self._delay_acks()

    def _watch_guards(self):
        from tokenflow.sglang.faults import FaultGuard

        guards, initialize = self._guards, FaultGuard.__init__

        def watched(guard, *args, **kwargs):
            initialize(guard, *args, **kwargs)
            guards.append(guard)

        FaultGuard.__init__ = watched

    def _delay_acks(self):
        """Copies between the pools may look unfinished for a while, as they are on a GPU."""
        from tokenflow.sglang.cpu_hicache import HostClockEvent

        def query(event):
            recorded_ns = event._recorded_ns
            return recorded_ns is None or time.perf_counter_ns() - recorded_ns >= self._late_acks_s * 1e9

        HostClockEvent.query = query

    def before_next_batch(self, scheduler, *_args, **_kwargs):
        self._take_orders(scheduler)
        if self._is_forgiving:  # so that the plugin does not turn itself off, however many faults are planted
            for guard in self._guards:
                guard.fault_count = 0
        now_s = time.monotonic()
        if self._aborts and now_s >= self._next_abort_s:
            self._abort_one(scheduler, now_s)
        if self._is_report_wanted and scheduler.is_fully_idle():
            self._is_report_wanted, self._is_dirty = False, True
            try:
                self._report = report_of(scheduler)
            except Exception:  # noqa: BLE001 - the engine must not end with it: the test reads what is wrong
                self._problems.append(traceback.format_exc())
        if self._is_dirty and now_s >= self._next_answer_s:
            self._next_answer_s = now_s + 0.1
            self._is_dirty = False
            self._answer()

    def _take_orders(self, scheduler):
        try:
            stamp = os.stat(self._folder / ORDERS).st_mtime_ns
        except FileNotFoundError:
            return
        if stamp == self._stamp:
            return
        self._stamp = stamp
        orders = json.loads((self._folder / ORDERS).read_text())
        self._number = orders["number"]
        self._faults = orders.get("faults", {})
        self._aborts = Counter(orders.get("aborts", {}))
        self._is_report_wanted = orders.get("report", False)
        self._report = None
        self._hits, self._aborted, self._aborted_rids = Counter(), Counter(), []
        for point in self._faults:
            self._plant(point)
        self._late_acks_s = orders.get("late_acks_s", 0.0)
        self._retract(orders.get("retract_every"))
        self._is_forgiving = orders.get("forget_faults", False)
        if "host_tokens_to_take" in orders:
            self._take_host(scheduler, orders["host_tokens_to_take"])
        self._is_dirty, self._next_answer_s = True, 0.0

    def _retract(self, interval_steps):
        """SGLang's own switch for its tests: the KV pool counts as full every so many steps."""
        from sglang.srt.managers import scheduler as module

        module.TEST_RETRACT = interval_steps is not None
        module.TEST_RETRACT_INTERVAL = interval_steps or 1

    def _plant(self, point):
        """Wraps a method of ours once; whether it does anything then is the orders' to say."""
        if point in self._planted:
            return
        self._planted.add(point)
        path, _, name = point.rpartition(".")
        try:
            owner = pkgutil.resolve_name(path)
            function = getattr(owner, name)
        except (AttributeError, ImportError) as error:
            self._problems.append(f"{point}: {error}")
            return

        @functools.wraps(function)
        def planted(*args, **kwargs):
            fault = self._faults.get(point)
            if fault is None or fault["left"] <= 0:
                return function(*args, **kwargs)
            fault["calls"] = fault.get("calls", 0) + 1
            if fault["calls"] % fault["every"] != 1 % fault["every"]:
                return function(*args, **kwargs)
            fault["left"] -= 1
            self._hits[point] += 1
            self._is_dirty = True
            if fault["kind"] == "delay":
                time.sleep(fault["delay_s"])
            elif fault["kind"] == "before":
                raise PlantedError(f"before {point}")
            outcome = function(*args, **kwargs)
            if fault["kind"] == "after":
                raise PlantedError(f"after {point}")
            return outcome

        setattr(owner, name, planted)

    def _abort_one(self, scheduler, now_s):
        from sglang.srt.managers.io_struct import AbortReq

        for state in list(self._aborts):
            req = next((req for req in in_state(scheduler, state) if not req.rid.startswith("HEALTH_CHECK")), None)
            if req is None:
                continue
            self._aborts -= Counter({state: 1})
            self._aborted[state] += 1
            self._aborted_rids.append(req.rid)
            self._next_abort_s = now_s + ABORT_SPACING_S
            self._is_dirty = True
            scheduler.abort_request(AbortReq(rid=req.rid))
            return

    def _take_host(self, scheduler, token_count):
        """Takes memory out of the host pool, as other users of it would; 0 gives it back."""
        pool = scheduler.tree_cache.cache_controller.mem_pool_host
        if self._taken is not None:
            if int(pool.size) - int(pool.available_size()) >= len(self._taken):  # else a flush has freed it
                pool.free(self._taken)
            self._taken = None
        if token_count:
            self._taken = pool.alloc(min(token_count, pool.available_size()))

    def _answer(self):
        document = {
            "number": self._number,
            "problems": self._problems,
            "hits": dict(self._hits),
            "aborted": dict(self._aborted),
            "aborted_rids": self._aborted_rids,
            "host_tokens_taken": 0 if self._taken is None else len(self._taken),
            "report": self._report,
        }
        temporary = self._folder / f"{ANSWERS}.new"
        temporary.write_text(json.dumps(document))
        temporary.rename(self._folder / ANSWERS)


def in_state(scheduler, state):
    """The requests that SGLang's scheduler holds in one state, by its own lists."""
    waiting = scheduler.waiting_queue
    last = scheduler.last_batch
    match state:
        case "waiting":
            return [req for req in waiting if not req.output_ids]
        case "preempted":
            return [req for req in waiting if req.output_ids]
        case "offloading":
            return [req for req in waiting if req.output_ids] if scheduler.tree_cache.ongoing_write_through else []
        case "prefilling":
            chunked = [scheduler.chunked_req] if scheduler.chunked_req is not None else []
            fresh = last.reqs if last is not None and last.forward_mode.is_extend() else []
            return chunked + [req for req in fresh if not req.output_ids and req.finished_reason is None]
        case "loading":
            if not scheduler.tree_cache.ongoing_load_back or last is None or not last.forward_mode.is_extend():
                return []
            return [req for req in last.reqs if req.host_hit_length > 0 and req.finished_reason is None]
        case "running":
            batch = scheduler.running_batch
            return [req for req in batch.reqs if req.output_ids and req.finished_reason is None] if batch else []
    raise ValueError(state)


def report_of(scheduler):
    """What an idle scheduler still holds after its whole tree was evicted, as far as that goes, from both pools.

    What is left then is lost or locked. `tree_fault` is SGLang's own check of its tree, None where it finds nothing.
    """
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams

    tree = scheduler.tree_cache
    pool = tree.cache_controller.mem_pool_host
    allocator = scheduler.token_to_kv_pool_allocator
    tree.check_hicache_events()
    try:
        tree.sanity_check()
        tree_fault = None
    except Exception as error:  # noqa: BLE001 - the Rust tree raises its own kind
        tree_fault = f"{type(error).__name__}: {error}"
    report = {
        "tree_fault": tree_fault,
        "protected_tokens": int(tree.protected_size()),
        "ongoing_writes": len(tree.ongoing_write_through),
        "ongoing_loads": len(tree.ongoing_load_back),
        "waiting_count": len(scheduler.waiting_queue),
        "rows_held": scheduler.req_to_token_pool.size - len(scheduler.req_to_token_pool.free_slots),
        "host_tokens_cached": int(pool.size) - int(pool.available_size()),
    }
    tree.evict(EvictParams(num_tokens=int(scheduler.max_total_num_tokens)))
    tree.evict_host(int(pool.size))
    report["device_tokens_held"] = int(scheduler.max_total_num_tokens) - int(allocator.available_size())
    report["host_tokens_held"] = int(pool.size) - int(pool.available_size())
    return report

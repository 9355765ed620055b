"""A second SGLang plugin, for one test alone: each tensor-parallel rank writes down what it did, step by step.

It is found as any plugin is, by an entry point: `install` writes the metadata into a folder on PYTHONPATH. Each line
of a rank's file has the step's kind and a digest over what must be the same on all ranks.
"""

import json
import multiprocessing
import os
import sys
import zlib
from pathlib import Path

ENV = "RANK_PROBE"
BREAK = "break"  # while this file is in the folder, rank 1 fails at the first pause that it is to carry out


def install(folder: Path, environment: dict[str, str]) -> Path:
    """Puts the plugin on the path of an engine started with `environment`; the ranks' files go to the result."""
    site, out = folder / "rank-site", folder / "ranks"
    metadata = site / "rank_probe-1.0.dist-info"
    metadata.mkdir(parents=True)
    out.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rank-probe\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[sglang.srt.plugins]\nrank_probe = rank_probe:register\n")
    parts = [str(site), str(Path(__file__).parent), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(part for part in parts if part)
    environment[ENV] = str(out)
    return out


def register() -> None:
    folder = os.environ.get(ENV)
    if not folder or multiprocessing.parent_process() is None or "sglang.srt.managers.scheduler" not in sys.modules:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    recorder = Recorder(Path(folder))
    scheduler = "sglang.srt.managers.scheduler.Scheduler"
    HookRegistry.register(f"{scheduler}.get_next_batch_to_run", recorder.after_next_batch, HookType.AFTER)


class Recorder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = None
        self._pause_count = 0
        self._watch()

    def _watch(self):
        import msgspec

        from tokenflow.sglang.actuator import Actuator

        carry_out, recorder = Actuator.carry_out, self

        def watched(actuator, directive):
            if directive.pauses and recorder._is_to_fail():
                raise RuntimeError("a fault on one rank alone")
            result = carry_out(actuator, directive)
            recorder._pause_count += len(actuator.paused)
            recorder._write("directive", zlib.crc32(msgspec.msgpack.encode(directive)), len(actuator.paused))
            return result

        Actuator.carry_out = watched

    def _is_to_fail(self):
        """Once, on rank 1. Rank 0 leaves the file alone: it is there when rank 1 looks."""
        if self._rank() != 1 or not (self._folder / BREAK).exists():
            return False
        (self._folder / BREAK).unlink()
        return True

    def after_next_batch(self, plan, scheduler, *args, **kwargs):
        batch, running, waiting = plan.batch_to_run, plan.running_batch, scheduler.waiting_queue
        if batch is None and not waiting and running.is_empty():
            return
        rows = scheduler.req_to_token_pool.req_to_token
        tree = scheduler.tree_cache
        state = [
            [self._row(req, rows) for req in (batch.reqs if batch is not None else [])],
            [self._row(req, rows) for req in running.reqs],
            [(req.rid, len(req.output_ids)) for req in waiting],
            int(scheduler.token_to_kv_pool_allocator.available_size()),
            int(tree.evictable_size()),
            int(tree.protected_size()),
            int(tree.cache_controller.mem_pool_host.available_size()),
            len(tree.ongoing_write_through),
            len(tree.ongoing_load_back),
        ]
        self._write("step", zlib.crc32(json.dumps(state).encode()), self._pause_count)

    def _row(self, req, rows):
        """The request, its tokens, and the very slots in which its KV lies."""
        kv = req.kv
        slots = rows[kv.req_pool_idx, : kv.kv_committed_len].tolist() if kv.holds_kv else []
        return [req.rid, list(req.output_ids), kv.kv_committed_len, kv.cache_protected_len, slots]

    def _rank(self):
        from sglang.srt.runtime_context import get_parallel

        return get_parallel().tp_rank

    def _write(self, kind, digest, number):
        if self._file is None:
            self._file = (self._folder / f"rank-{self._rank()}").open("w", buffering=1)
        self._file.write(f"{kind} {digest} {number}\n")

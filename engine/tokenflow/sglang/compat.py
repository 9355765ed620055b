"""Is this the SGLang that the plugin was written against? Checked before anything is hooked.

A mismatch means: nothing is hooked, the engine serves unmodified, and `tfctl status` says `plugin: incompatible`
with the reason that is made here.
"""

import importlib.metadata
import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

SUPPORTED_VERSION = "0.5.23"


@dataclass(frozen=True, slots=True)
class HookTarget:
    """A function of SGLang that is hooked or called, and the parameters that it must have, in order."""

    path: str
    parameters: tuple[str, ...]


SCHEDULER_TARGETS = (
    HookTarget("sglang.srt.managers.scheduler.Scheduler.run_event_loop", ("self",)),
    HookTarget(
        "sglang.srt.managers.scheduler.Scheduler.get_next_batch_to_run", ("self", "running_batch", "last_batch")
    ),
    HookTarget("sglang.srt.managers.scheduler.Scheduler.process_batch_result", ("self", "batch", "result")),
)
ACTUATOR_TARGETS = (
    HookTarget(
        "sglang.srt.managers.scheduler.Scheduler._get_new_batch_prefill_raw",
        ("self", "prefill_delayer_single_pass", "running_batch"),
    ),
    HookTarget("sglang.srt.mem_cache.common.release_kv_cache", ("req", "tree_cache", "checkpoint")),
    HookTarget("sglang.srt.managers.schedule_batch.ScheduleBatch._get_decode_retraction_order", ("reqs",)),
    HookTarget("sglang.srt.managers.scheduler.Scheduler._abort_on_queued_limit", ("self", "recv_req")),
    HookTarget(
        "sglang.srt.managers.scheduler_components.request_receiver.SchedulerRequestReceiver.recv_requests",
        ("self", "local_reqs"),
    ),
    HookTarget("sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache.init_load_back", ("self", "params")),
    HookTarget("sglang.srt.managers.scheduler.Scheduler._poll_timeout_aborts", ("self",)),
)
FRONTEND_TARGETS = (
    HookTarget("sglang.srt.managers.tokenizer_manager.TokenizerManager.generate_request", ("self", "obj", "request")),
    HookTarget("sglang.srt.managers.tokenizer_manager.TokenizerManager._send_one_request", ("self", "tokenized_obj")),
    HookTarget(
        "sglang.srt.managers.tokenizer_manager.TokenizerManager._send_batch_request", ("self", "tokenized_objs")
    ),
)
CALLED_TARGETS = (  # not hooked, but called by us
    HookTarget("sglang.srt.managers.tokenizer_manager.TokenizerManager.abort_request", ("self", "rid", "abort_all")),
)
ALL_TARGETS = SCHEDULER_TARGETS + ACTUATOR_TARGETS + FRONTEND_TARGETS + CALLED_TARGETS
# Read on the live scheduler; checked when the event loop begins, since they are made in its constructor.
SCHEDULER_ATTRIBUTES = (
    "waiting_queue",
    "running_batch",
    "last_batch",
    "chunked_req",
    "max_running_requests",
    "is_mixed_chunk",
    "idle_sleeper",
    "tree_cache",
    "token_to_kv_pool_allocator",
    "max_total_num_tokens",
    "page_size",
    "process_batch_result",
    "processed_tokens_counter",
    "is_fully_idle",
    "enable_overlap",
    "_engine_paused",
    "_collect_inflight_batches",
)

# The same of its radix tree, where that is the one that enforcing works with (others are blocked: see `blockers`).
TREE_ATTRIBUTES = (
    "checkpoint",
    "evictable_size",
    "protected_size",
    "flush_pending_backups",
    "inc_lock_ref",
    "dec_lock_ref",
    "inc_host_lock_ref",
    "dec_host_lock_ref",
    "ongoing_write_through",
    "_apply_cache_action",
    "_evict_device_leaf",
    "writing_check",
    "loading_check",
)
TREE_CORE_ATTRIBUTES = (
    "collect_path_info",
    "is_backuped",
    "match_full_device_prefix",
    "build_backup_kv_action",
)


def engine_version() -> str | None:
    """The installed SGLang's version, or None without one."""
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return None


def find_mismatch(
    targets: Iterable[HookTarget],
    *,
    version: str | None = None,
    resolve: Callable[[str], Any] = pkgutil.resolve_name,
) -> str | None:
    """One line that says what does not fit, or None if everything does."""
    version = version or engine_version()
    if version != SUPPORTED_VERSION:
        return f"SGLang {version} is installed, the plugin needs exactly {SUPPORTED_VERSION}"
    for target in targets:
        try:
            function = resolve(target.path)
        except (ImportError, AttributeError) as error:
            return f"{target.path} is missing: {error}"
        found = tuple(inspect.signature(function).parameters)
        if found != target.parameters:
            return f"{target.path} takes ({', '.join(found)}), expected ({', '.join(target.parameters)})"
    return None


def find_unhooked(targets: Iterable[HookTarget], applied: Collection[str] | None = None) -> list[str]:
    """Targets on which no hook is in place. SGLang only logs a hook that fails to apply, and notes those that did."""
    if applied is None:
        from sglang.srt.plugins.hook_registry import HookRegistry

        applied = HookRegistry._patched
    return [target.path for target in targets if target.path not in applied]


def find_missing_attributes(scheduler: Any) -> str | None:
    """One line naming what the live scheduler lacks, or None."""
    if problem := _lacks("the scheduler", scheduler, SCHEDULER_ATTRIBUTES):
        return problem
    core = getattr(scheduler.tree_cache, "tree_core", None)
    if core is None:
        return None
    return _lacks("the radix tree", scheduler.tree_cache, TREE_ATTRIBUTES) or _lacks(
        "the radix tree's core", core, TREE_CORE_ATTRIBUTES
    )


def _lacks(what: str, owner: object, names: Iterable[str]) -> str | None:
    missing = [name for name in names if not hasattr(owner, name)]
    return f"{what} has no attribute {', '.join(missing)}" if missing else None

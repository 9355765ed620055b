"""The entry point that SGLang calls in each of its processes (group `sglang.srt.plugins`).

Inert in any SGLang that our daemon or launcher did not start: without `TOKENFLOW_LINK` nothing is imported or hooked.
"""

import logging
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

from tokenflow.link import LINK_ENV

logger = logging.getLogger(__name__)

SCHEDULER_MODULE = "sglang.srt.managers.scheduler"


def register() -> None:
    """Hooks what this process needs, or nothing at all."""
    folder = os.environ.get(LINK_ENV, "")
    if not folder:
        return
    from tokenflow.sglang import cpu_hicache

    cpu_hicache.apply()
    if multiprocessing.parent_process() is None:
        _register_frontend(Path(folder))
    elif SCHEDULER_MODULE in sys.modules:
        _register_scheduler(Path(folder))


def _register_frontend(folder: Path) -> None:
    from tokenflow.sglang import compat, settings
    from tokenflow.sglang.faults import FaultGuard
    from tokenflow.sglang.frontend import CommandThread, Frontend
    from tokenflow.sglang.reporter import DeliveryReporter
    from tokenflow.sglang.row_client import RowClient

    guard = FaultGuard()
    frontend = Frontend(settings.load(), guard, DeliveryReporter(folder), RowClient(folder))
    frontend.hook_problem = compat.find_mismatch(compat.ALL_TARGETS)
    if frontend.hook_problem is None:
        _hook_frontend(frontend)
    else:
        logger.warning("tokenflow: nothing is hooked, serving is unmodified: %s", frontend.hook_problem)
    CommandThread(folder, frontend.answer, guard).start()


def _hook_frontend(frontend: Any) -> None:
    from sglang.srt.entrypoints import http_server
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from starlette.middleware import Middleware

    from tokenflow.sglang.compat import FRONTEND_TARGETS, find_unhooked
    from tokenflow.sglang.listening import STARTUP_TARGET, ListeningHook
    from tokenflow.sglang.middleware import TokenFlowMiddleware
    from tokenflow.sglang.reader_middleware import ReaderMiddleware
    from tokenflow.sglang.stream_routes import is_access_logged
    from tokenflow.sglang.tokenizer_hooks import TokenizerHooks

    hooks = TokenizerHooks(frontend)
    generate, send_one, send_batch = FRONTEND_TARGETS
    HookRegistry.register(generate.path, hooks.around_generate, HookType.AROUND)
    HookRegistry.register(send_one.path, hooks.before_send_one, HookType.BEFORE)
    HookRegistry.register(send_batch.path, hooks.before_send_batch, HookType.BEFORE)
    HookRegistry.register(STARTUP_TARGET, ListeningHook(frontend.guard).around_startup, HookType.AROUND)
    http_server.app.add_middleware(TokenFlowMiddleware, frontend=frontend)
    # At the end of the list, so that it is the innermost: see its module.
    http_server.app.user_middleware.append(Middleware(ReaderMiddleware, frontend=frontend))
    logging.getLogger("uvicorn.access").addFilter(is_access_logged)
    frontend.find_unhooked = lambda: find_unhooked(FRONTEND_TARGETS)


def _register_scheduler(folder: Path) -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from tokenflow.sglang import compat, cpu_attention, settings
    from tokenflow.sglang.scheduler_hooks import SchedulerHooks

    cpu_attention.apply()
    problem = compat.find_mismatch(compat.ALL_TARGETS)
    if problem is not None:
        logger.warning("tokenflow: nothing is hooked in the scheduler: %s", problem)
        return
    hooks = SchedulerHooks(folder, settings.load())
    run_loop, next_batch, step_done = compat.SCHEDULER_TARGETS
    HookRegistry.register(run_loop.path, hooks.before_run_loop, HookType.BEFORE)
    HookRegistry.register(next_batch.path, hooks.before_next_batch, HookType.BEFORE)
    HookRegistry.register(step_done.path, hooks.after_step, HookType.AFTER)
    admission, release, retraction_order, queue_limit, receive, load_back, timeouts = compat.ACTUATOR_TARGETS
    HookRegistry.register(admission.path, hooks.around_admission, HookType.AROUND)
    HookRegistry.register(release.path, hooks.around_release, HookType.AROUND)
    HookRegistry.register(retraction_order.path, hooks.around_retraction_order, HookType.AROUND)
    HookRegistry.register(queue_limit.path, hooks.around_queue_limit, HookType.AROUND)
    HookRegistry.register(receive.path, hooks.around_receive, HookType.AROUND)
    HookRegistry.register(load_back.path, hooks.around_load_back, HookType.AROUND)
    HookRegistry.register(timeouts.path, hooks.around_timeouts, HookType.AROUND)

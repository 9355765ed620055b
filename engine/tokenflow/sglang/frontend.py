"""The HTTP process's half of the plugin: open responses, admission, delivery stamps, and the link's commands."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import zmq

from tokenflow import link
from tokenflow.sglang import compat
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.settings import PluginSettings
from tokenflow.sglang.streams import StreamContext
from tokenflow.version import __version__
from tokenflow.wire import PluginState

DELIVERY_FLUSH_S = 0.02
CUT_WAIT_S = 3.0


class DeliveryReporter:
    """Sends delivery totals to the scheduler, merged over short intervals. Loss is harmless: they are totals."""

    def __init__(self, folder: Path) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, 1000)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(f"ipc://{folder / link.DELIVERY_SOCKET}")
        self._pending: dict[str, link.Delivery] = {}
        self._is_flush_planned = False

    def report(self, deliveries: list[link.Delivery]) -> None:
        """Called on the event loop. A stream's first delivery starts its reader, so its stamp is kept exact."""
        for delivery in deliveries:
            self._pending[delivery.rid] = delivery
        if self._pending and not self._is_flush_planned:
            self._is_flush_planned = True
            asyncio.get_running_loop().call_later(DELIVERY_FLUSH_S, self.flush)

    def flush(self) -> None:
        self._is_flush_planned = False
        if not self._pending:
            return
        batch = link.DeliveryBatch(list(self._pending.values()))
        self._pending.clear()
        try:
            self._socket.send(link.encode(batch), zmq.NOBLOCK)
        except zmq.Again:
            pass  # the scheduler is far behind; the next totals will tell it


class Frontend:
    """Shared by the middleware, the tokenizer hooks and the command thread of the HTTP process."""

    def __init__(self, settings: PluginSettings, guard: FaultGuard, reporter: DeliveryReporter) -> None:
        self.settings = settings
        self.guard = guard
        self.reporter = reporter
        self.is_admission_open = True
        self.streams: set[StreamContext] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.hook_problem: str | None = None
        self.find_unhooked: Callable[[], list[str]] | None = None  # asked once, when SGLang has applied its hooks

    def open_stream(self, stream: StreamContext) -> None:
        self.loop = asyncio.get_running_loop()
        self.streams.add(stream)

    def close_stream(self, stream: StreamContext) -> None:
        """The response is complete or its client is gone; a second call does nothing."""
        if stream in self.streams:
            self.streams.remove(stream)
            self.reporter.report(stream.closing())

    def cut_streams(self, message: str) -> None:
        """Ends every open response; runs on the event loop. The middleware writes the error event."""
        for stream in list(self.streams):
            if stream.cut_message is None and stream.task is not None:
                stream.cut_message = message
                stream.task.cancel()

    def answer(self, command: link.Command) -> link.Reply:
        """Carries out one command of the daemon; called on the link's thread."""
        reply = link.Reply(
            plugin_version=__version__,
            pid=os.getpid(),
            plugin=PluginState.ACTIVE,
            engine_version=compat.engine_version(),
        )
        is_ready = is_engine_ready()
        if is_ready:
            self._check_hooks()
        if self.hook_problem is not None:
            reply.plugin, reply.plugin_detail = PluginState.INCOMPATIBLE, self.hook_problem
        elif self.guard.is_tripped:
            reply.plugin, reply.plugin_detail = PluginState.DISABLED, self.guard.last_fault
        match command:
            case link.CloseAdmission(reopen=reopen):
                self.is_admission_open = reopen
            case link.CutStreams(message=message):
                self._cut_and_wait(message)
            case link.Ping():
                pass
            case _:
                reply.error_code, reply.error_message = "unsupported", "that is the scheduler's to do"
        reply.is_ready = is_ready
        reply.open_stream_count = len(self.streams)
        return reply

    def _check_hooks(self) -> None:
        find, self.find_unhooked = self.find_unhooked, None
        if find is not None and (unhooked := find()):
            self.hook_problem = f"no hook is in place on {', '.join(unhooked)}"

    def _cut_and_wait(self, message: str) -> None:
        if self.loop is None:
            return
        self.loop.call_soon_threadsafe(self.cut_streams, message)
        deadline_s = time.monotonic() + CUT_WAIT_S
        while self.streams and time.monotonic() < deadline_s:
            time.sleep(0.02)


def is_engine_ready() -> bool:
    """Whether SGLang's own start-up, its warm-up included, is over. Reads its state; generates nothing."""
    module = sys.modules.get("sglang.srt.entrypoints.http_server")
    state = getattr(module, "_global_state", None)
    manager = getattr(state, "tokenizer_manager", None)
    return manager is not None and bool(manager.is_healthy())


class CommandThread(threading.Thread):
    """Answers the daemon's commands apart from the HTTP process's event loop, so that a busy one still answers."""

    def __init__(self, folder: Path, answer: Callable[[link.Command], link.Reply], guard: FaultGuard) -> None:
        super().__init__(name="tokenflow-link", daemon=True)
        self._answer = answer
        self._guard = guard
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(f"ipc://{folder / link.FRONTEND_SOCKET}")

    def run(self) -> None:
        while True:
            try:
                *envelope, body = self._socket.recv_multipart()
                self._socket.send_multipart([*envelope, link.encode(self._reply_to(body))])
            except zmq.ContextTerminated:
                return
            except Exception as error:  # noqa: BLE001 - one bad message must not end the thread
                self._guard.record("frontend link", error)

    def _reply_to(self, body: bytes) -> link.Reply:
        try:
            return self._answer(link.decode_command(body))
        except Exception as error:  # noqa: BLE001 - the sender learns of it
            self._guard.record("frontend command", error)
            return link.Reply(
                plugin_version=__version__,
                pid=os.getpid(),
                plugin=PluginState.ACTIVE,
                error_code="bad_command",
                error_message=str(error),
            )

"""The HTTP process's half of the plugin: open responses, admission, delivery stamps, and the link's commands."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import zmq

from tokenflow import link
from tokenflow.sglang import compat
from tokenflow.sglang.aborts import Aborter
from tokenflow.sglang.client_watch import ClientWatch
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.reporter import DeliveryReporter
from tokenflow.sglang.row_client import RowClient
from tokenflow.sglang.settings import PluginSettings
from tokenflow.sglang.stream_book import StreamBook
from tokenflow.sglang.streams import StreamContext
from tokenflow.version import __version__
from tokenflow.wire import PluginState

CUT_WAIT_S = 3.0


class Frontend:
    """Shared by the middlewares, the tokenizer hooks and the command thread of the HTTP process."""

    def __init__(
        self, settings: PluginSettings, guard: FaultGuard, reporter: DeliveryReporter, rows: RowClient
    ) -> None:
        self.settings = settings
        self.guard = guard
        self.reporter = reporter
        self.rows = rows
        self.book = StreamBook()
        self.aborter = Aborter(guard)
        self._watch = ClientWatch(self.book, settings, reporter, self.aborter, guard)
        self.is_admission_open = True
        self.bare_count = 0  # open responses of clients whom nothing of ours serves: the plugin has turned itself off
        self.loop: asyncio.AbstractEventLoop | None = None
        self.hook_problem: str | None = None
        self.find_unhooked: Callable[[], list[str]] | None = None  # asked once, when SGLang has applied its hooks

    def open_stream(self, stream: StreamContext) -> None:
        self.loop = asyncio.get_running_loop()
        self.book.add(stream)
        self._watch.wake()

    def close_stream(self, stream: StreamContext) -> None:
        """The response is complete or its client is gone; a second call does nothing."""
        if self.book.close(stream):
            self.reporter.report(stream.closing())

    def note_dispatch(self, stream: StreamContext, manager: Any, rid: str, is_streamed: bool) -> None:
        """SGLang is about to send this request to its scheduler."""
        self.book.add_choice(stream, rid, is_streamed)
        if stream.is_disconnected and not stream.is_background:
            # Its client has left while it was prepared. After the request itself: an abort must not overtake it.
            asyncio.get_running_loop().call_soon(self.aborter.abort, manager, [rid])

    def client_left(self, stream: StreamContext) -> None:
        """Before its response was complete: what is made for it ends now, and not after SGLang's two seconds."""
        stream.is_disconnected = True
        manager, is_background = stream.manager, stream.is_background
        self.close_stream(stream)
        self.reporter.flush()
        if manager is not None and not is_background:
            self.aborter.abort(manager, list(stream.choices))

    def cut_streams(self, message: str) -> None:
        """Ends every open response; runs on the event loop. The middleware writes the error event."""
        for stream in list(self.book.open):
            if stream.cut_message is None and stream.task is not None:
                stream.cut_message = message
                stream.task.cancel()

    def abort_stream(self, rid: str) -> bool:
        """Ends one request as an operator asked; False if it is not open here. Called on the link's thread."""
        stream = self.book.find(rid)
        manager = None if stream is None else stream.manager
        if manager is None or self.loop is None or rid not in manager.rid_to_state:
            return False
        self.loop.call_soon_threadsafe(self.aborter.abort, manager, [rid])
        return True

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
            case link.AbortStream(rid=rid):
                if not self.abort_stream(rid):
                    reply.error_code, reply.error_hint = "not_found", "tfctl ps"
                    reply.error_message = f"there is no request {rid!r} in the engine"
            case link.Ping():
                pass
            case _:
                reply.error_code, reply.error_message = "unsupported", "that is the scheduler's to do"
        reply.is_ready = is_ready
        reply.open_stream_count = len(self.book.open) + self.bare_count
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
        while self.book.open and time.monotonic() < deadline_s:
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
        command: link.Command | None = None
        try:
            command = link.decode_command(body)
            return self._answer(command)
        except msgspec.ValidationError as error:  # of a newer daemon: no fault of ours
            return _refusal("unsupported", f"this plugin does not know that: {error}")
        except Exception as error:  # noqa: BLE001 - the sender learns of it
            self._guard.record("frontend command", error, getattr(command, "rid", None))
            return _refusal("bad_command", str(error))


def _refusal(code: str, message: str) -> link.Reply:
    return link.Reply(
        plugin_version=__version__,
        pid=os.getpid(),
        plugin=PluginState.ACTIVE,
        error_code=code,
        error_message=message,
    )

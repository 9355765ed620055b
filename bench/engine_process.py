"""A bare engine for benchmarks: the launcher as a child, its link, no daemon in between."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import zmq

from tokenflow import link
from tokenflow.setup.model import ensure_demo_model

START_LIMIT_S = 300.0
DEVICE_ENV = "BENCH_DEVICE"  # cpu (unless set) or cuda
ADMIN_KEY = "bench"  # of the admin routes of an engine that lives for one bench
MODEL_ENV = "BENCH_MODEL"  # a model's folder instead of the demo model
ARGS_ENV = "BENCH_ARGS"  # more SGLang arguments, in a shell's notation; they override what stands before them
COMMON_ARGS = ("--served-model-name", "demo", "--host", "127.0.0.1")
DEVICE_ARGS = {
    "cpu": ("--device", "cpu", "--attention-backend", "torch_native", "--dtype", "float32"),
    "cuda": ("--device", "cuda"),
}


def device() -> str:
    """Where the engine is to run."""
    name = os.environ.get(DEVICE_ENV, "cpu")
    if name not in DEVICE_ARGS:
        raise SystemExit(f"{DEVICE_ENV}={name}: {' or '.join(DEVICE_ARGS)}")
    return name


class EngineProcess:
    """A running engine: `url`, and the daemon's ends of its link."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._process = process
        self._folder = folder
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._telemetry = self._context.socket(zmq.SUB)
        self._telemetry.setsockopt(zmq.SUBSCRIBE, b"")
        self._telemetry.setsockopt(zmq.CONFLATE, 1)
        self._telemetry.connect(f"ipc://{folder / link.TELEMETRY_SOCKET}")

    def telemetry(self, timeout_s: float = 60.0) -> link.Telemetry:
        """The next telemetry message."""
        if not self._telemetry.poll(int(timeout_s * 1000)):
            raise TimeoutError("no telemetry from the engine")
        return link.decode_telemetry(self._telemetry.recv())

    def command(self, message: link.Command, name: str = link.SCHEDULER_SOCKET, timeout_s: float = 60.0) -> link.Reply:
        """Sends one command and waits for its answer."""
        with self._context.socket(zmq.DEALER) as dealer:
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.connect(f"ipc://{self._folder / name}")
            dealer.send(link.encode(message))
            if not dealer.poll(int(timeout_s * 1000)):
                raise TimeoutError(f"no answer to {message!r}")
            return link.decode_reply(dealer.recv())

    def wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                raise RuntimeError(f"the engine ended while starting, see {self._folder / 'engine.log'}")
            with contextlib.suppress(TimeoutError):
                if self.command(link.Ping(), link.FRONTEND_SOCKET, timeout_s=1.0).is_ready:
                    return
        raise TimeoutError("the engine did not become ready")

    def close(self) -> None:
        """Ends the whole process group."""
        self._context.destroy(linger=0)
        for kind, grace_s in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 15.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, kind)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


@contextlib.contextmanager
def running_engine(*engine_args: str) -> Iterator[EngineProcess]:
    """Starts the demo model, or the one that BENCH_MODEL names, with these SGLang arguments, and ends it.

    A SIGTERM ends it too: it runs in a session of its own and would outlive us.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    model = os.environ.get(MODEL_ENV) or ensure_demo_model(lambda text, ratio: None)
    extra_args = shlex.split(os.environ.get(ARGS_ENV, ""))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="tf-bench-") as name, (Path(name) / "engine.log").open("wb") as log:
        command = [sys.executable, "-m", "tokenflow.sglang.launch", "--model-path", str(model), "--port", str(port)]
        process = subprocess.Popen(
            [*command, "--admin-api-key", ADMIN_KEY, *COMMON_ARGS, *DEVICE_ARGS[device()], *engine_args, *extra_args],
            env={**os.environ, link.LINK_ENV: name},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        engine = EngineProcess(process, port, Path(name))
        try:
            engine.wait_until_ready()
            yield engine
        except BaseException:
            print((Path(name) / "engine.log").read_text(errors="replace")[-3000:], file=sys.stderr)
            raise
        finally:
            engine.close()

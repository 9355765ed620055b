"""SGLang as it is, on the CPU: the same launcher, and the plugin installed but not wanted."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

from tokenflow.setup.model import ensure_demo_model

STOCK_ARGS = [
    *("--device", "cpu", "--attention-backend", "torch_native", "--dtype", "float32", "--sleep-on-idle"),
    *("--max-total-tokens", "4096", "--context-length", "4096", "--max-running-requests", "8"),
    *("--chunked-prefill-size", "512", "--host", "127.0.0.1", "--served-model-name", "stock"),
]


class StockEngine:
    """SGLang without TOKENFLOW_LINK: the installed plugin must stay inert in it."""

    def __init__(self, log_path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log_path = log_path
        model = ensure_demo_model(lambda text, ratio: None)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOKENFLOW_")}
        command = [sys.executable, "-m", "tokenflow.sglang.launch", "--model-path", str(model)]
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port), *STOCK_ARGS],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_serving(self) -> None:
        deadline_s = time.monotonic() + 300.0
        while "fired up and ready" not in self.log_path.read_text(errors="replace"):
            assert self.process.poll() is None, self.log_path.read_text()[-2000:]
            assert time.monotonic() < deadline_s, self.log_path.read_text()[-2000:]
            time.sleep(0.25)

    def headers(self) -> dict[str, str]:
        body = b'{"model": "stock", "prompt": "Hi", "max_tokens": 1}'
        request = urllib.request.Request(f"{self.url}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return dict(answer.headers)

    def forget_prompts(self) -> None:
        """What it has computed for a prompt would make the same prompt's next first token faster."""
        request = urllib.request.Request(f"{self.url}/flush_cache", b"")
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        for kind in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, kind)
                self.process.wait(20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue

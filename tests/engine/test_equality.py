"""At temperature 0 in float32 the plugin changes nothing: the text with it equals the text without it."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.run import LoadRun
from tokenflow.setup.model import ensure_demo_model

PLAN = StreamPlan(
    index=0, arrival_s=0.0, prompt="Explain how a sailing boat can sail upwind.", rate_tok_s=6.0, max_tokens=96
)
STOCK_ARGS = [
    *("--device", "cpu", "--attention-backend", "torch_native", "--dtype", "float32", "--sleep-on-idle"),
    *("--max-total-tokens", "4096", "--context-length", "4096", "--max-running-requests", "8"),
    *("--chunked-prefill-size", "512", "--host", "127.0.0.1", "--served-model-name", "stock"),
]


def text_of(url: str, model: str) -> str:
    run = LoadRun(Endpoint(url=url, model=model), [PLAN], keep_text=True)
    [stream] = asyncio.run(run.execute()).streams
    assert stream.error is None
    assert stream.text
    return stream.text


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


def test_the_text_is_that_of_an_engine_without_the_plugin(own_engine, tmp_path):
    stock = StockEngine(tmp_path / "stock.log")
    try:
        stock.wait_until_serving()
        assert not [name for name in stock.headers() if name.lower().startswith("x-tokenflow")]
        expected = text_of(stock.url, "stock")
    finally:
        stock.close()

    own_engine.start()
    assert own_engine.tfctl("mode", "observe").returncode == 0
    assert own_engine.status()["engine"]["plugin"] == "active"
    assert own_engine.status()["policy"]["mode"] == "observe"
    assert text_of(own_engine.url, own_engine.model) == expected
    own_engine.stop()
    own_engine.assert_nothing_left()

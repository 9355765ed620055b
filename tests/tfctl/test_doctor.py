"""`tfctl doctor`: each check from planted facts, and the command as a whole with and without a daemon."""

import http.server
import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfctl.doctor import gpu, host, installation, proxy, run
from tfctl.doctor.proxy import Timing
from tfctl.host_documents import Check, CheckState
from tokenflow import locations

GIB = 1024**3


def planted(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def state_of(checks: list[Check] | Check, name: str | None = None) -> CheckState:
    found = [checks] if isinstance(checks, Check) else [check for check in checks if check.name == name]
    assert len(found) == 1, checks
    assert (found[0].hint is None) is (found[0].state is CheckState.PASS)
    return found[0].state


def meminfo(available_bytes: int) -> dict[str, str]:
    return {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {available_bytes // 1024} kB\n"}


def test_memory_is_bounded_by_the_narrowest_control_group(tmp_path):
    root = planted(tmp_path, meminfo(64 * GIB))
    assert state_of(host.memory(root)) is CheckState.PASS
    base = "sys/fs/cgroup"
    planted(
        root,
        {
            "proc/self/cgroup": "0::/user/box\n",
            f"{base}/user/memory.max": f"{4 * GIB}\n",
            f"{base}/user/memory.current": f"{3 * GIB}\n",
            f"{base}/user/box/memory.max": "max\n",
            f"{base}/user/box/memory.current": "1\n",
        },
    )
    check = host.memory(root)
    assert state_of(check) is CheckState.WARN
    assert check.message.startswith("1.0 GiB of system memory available, bounded by its control group")
    assert "not the GPU's" in str(check.hint)
    assert state_of(host.memory(tmp_path / "nowhere")) is CheckState.SKIP


def test_huge_pages(tmp_path):
    path = "sys/kernel/mm/transparent_hugepage/enabled"
    for text, state in (("always [madvise] never", CheckState.PASS), ("always madvise [never]", CheckState.WARN)):
        assert state_of(host.huge_pages(planted(tmp_path, {path: text}))) is state
    assert state_of(host.huge_pages(tmp_path / "nowhere")) is CheckState.SKIP


def test_limits(monkeypatch):
    monkeypatch.setattr(host.resource, "getrlimit", lambda _: (1024, 2048))
    assert state_of(host.locked_memory(True)) is CheckState.WARN
    assert state_of(host.locked_memory(False)) is CheckState.SKIP
    assert state_of(host.open_files()) is CheckState.WARN
    monkeypatch.setattr(host.resource, "getrlimit", lambda _: (host.resource.RLIM_INFINITY,) * 2)
    assert state_of(host.locked_memory(True)) is CheckState.PASS


def test_disks_and_shared_memory(tmp_path, monkeypatch):
    assert state_of(host.disk("state", tmp_path / "not" / "yet")) in (CheckState.PASS, CheckState.WARN)
    for free, state in ((0, CheckState.FAIL), (512 * 1024**2, CheckState.WARN), (9 * GIB, CheckState.PASS)):
        monkeypatch.setattr(
            os, "statvfs", lambda _, free=free: SimpleNamespace(f_bavail=free, f_blocks=free, f_frsize=1)
        )
        assert state_of(host.disk("state", tmp_path)) is state
        assert state_of(host.shared_memory()) is (CheckState.PASS if free > GIB else CheckState.WARN)
    monkeypatch.undo()
    assert state_of(host.shared_memory(tmp_path)) is CheckState.FAIL


def test_what_asks_the_kernel_has_an_answer():
    for check in (host.clock(), host.pinned_probe()):
        assert state_of(check) in (CheckState.PASS, CheckState.WARN, CheckState.SKIP)


class FakeNvml:
    """One GPU: half its lanes, two uncorrected errors, and a question that the driver does not answer."""

    class NVMLError(Exception):
        pass

    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0

    def __init__(self) -> None:
        self.values = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetCount": 1,
            "nvmlSystemGetDriverVersion": "999.1",
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(free=10 * GIB, total=80 * GIB),
            "nvmlDeviceGetCurrPcieLinkGeneration": 1,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkWidth": 8,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetTotalEccErrors": 2,
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:41:00.0"),
        }

    def __getattr__(self, name):
        def answer(*_):
            if name not in self.values:
                raise FakeNvml.NVMLError("Not Supported")
            return self.values[name]

        return answer


def test_gpus_as_nvml_tells_them(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pynvml", FakeNvml())
    found = gpu.checks(has_gpu=True)
    assert found[0].message == "1 GPUs, driver 999.1"
    assert state_of(found, "gpu0 memory") is CheckState.WARN
    assert state_of(found, "gpu0 mig") is CheckState.SKIP
    assert state_of(found, "gpu0 pcie") is CheckState.WARN
    assert state_of(found, "gpu0 ecc") is CheckState.FAIL
    assert state_of(found, "gpu0 numa") in (CheckState.PASS, CheckState.SKIP, CheckState.WARN)
    assert state_of(gpu.checks(has_gpu=False), "gpu") is CheckState.SKIP


def test_a_driver_that_does_not_answer(monkeypatch):
    broken = FakeNvml()
    del broken.values["nvmlInit"]
    monkeypatch.setitem(__import__("sys").modules, "pynvml", broken)
    assert state_of(gpu.checks(has_gpu=True), "gpu") is CheckState.FAIL


def profile(arguments: list[str], port: int = 0) -> None:
    path = locations.user_config_folder() / "profiles" / "mine.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'name = "mine"\n[model]\npath = "/m"\nserved_name = "m"\n[engine]\ndevice = "cuda"\nport = {port}\n'
        f"args = {json.dumps(arguments)}\n"
    )


@pytest.mark.parametrize(
    ("arguments", "state"),
    [
        ([], CheckState.WARN),
        (["--enable-hierarchical-cache", "--hicache-ratio", "1"], CheckState.WARN),
        (["--enable-hierarchical-cache", "--hicache-ratio=2"], CheckState.PASS),
        (["--enable-hierarchical-cache", "--hicache-size", "30"], CheckState.PASS),
    ],
)
def test_the_host_pool_of_a_profile(home, arguments, state):
    profile(arguments)
    assert state_of(installation.host_pool("mine")) is state
    assert installation.device_of("mine") == "cuda"
    assert state_of(installation.host_pool("nope")) is CheckState.SKIP


def test_a_port_that_somebody_has(home):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        profile([], number)
        assert state_of(installation.port("mine", None)) is CheckState.FAIL
        assert state_of(installation.port("mine", f"http://127.0.0.1:{number}")) is CheckState.PASS
    assert state_of(installation.port("mine", None)) is CheckState.PASS


def test_folders_and_settings(home):
    assert state_of(installation.runtime_folder()) is CheckState.PASS
    locations.user_runtime_folder().chmod(0o755)
    assert state_of(installation.runtime_folder()) is CheckState.WARN
    assert state_of(installation.settings()) is CheckState.PASS
    path = locations.user_config_folder() / "tokenflow.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("flavour = 1")
    check = installation.settings()
    assert state_of(check) is CheckState.FAIL
    assert "flavour: unknown key" in check.message


def test_without_a_daemon(tfctl):
    outcome = tfctl("doctor", "--json")
    document = json.loads(outcome.out)
    states = {check["name"]: check["state"] for check in document["checks"]}
    assert (states["daemon"], states["engine state"]) == ("skip", "skip")
    assert document["ok"] is ("fail" not in states.values())
    assert outcome.code == (0 if document["ok"] else 1)
    assert all((check["hint"] is None) is (check["state"] == "pass") for check in document["checks"])


@pytest.mark.parametrize(
    ("state", "found"), [("serving", "pass"), ("starting", "warn"), ("failed", "fail"), ("stopped", "skip")]
)
def test_with_a_daemon(tfctl, daemon_in, state, found):
    daemon_in(state)
    outcome = tfctl("doctor", "--json")
    states = {check["name"]: check["state"] for check in json.loads(outcome.out)["checks"]}
    assert (states["daemon"], states["engine state"]) == ("pass", found)
    assert outcome.code == int("fail" in states.values())


def test_for_people_a_failure_comes_with_its_next_step(tfctl, daemon_in):
    daemon_in("failed")
    outcome = tfctl("doctor")
    assert outcome.code == 1
    assert "fail  engine state" in outcome.out
    assert "tfctl logs -n 50; then: tfctl restart" in outcome.out
    quiet = tfctl("doctor", "-q").out
    assert "pass" not in quiet
    assert "fail  engine state" in quiet


def test_a_check_that_breaks_hides_no_other(tfctl, monkeypatch):
    def broken():
        raise ZeroDivisionError("of the test")

    monkeypatch.setattr(run.host, "open_files", broken)
    checks = {check["name"]: check for check in json.loads(tfctl("doctor", "--json").out)["checks"]}
    assert checks["files"]["message"] == "the check broke: ZeroDivisionError: of the test"
    assert checks["hugepages"]["state"] in ("pass", "warn", "skip")


HEADERS = {"x-accel-buffering": "no", "x-tokenflow-request-id": "tf-1"}


@pytest.mark.parametrize(
    ("through", "direct", "state"),
    [
        (Timing(0.5, 1.0, 16, HEADERS), Timing(0.4, 1.0, 16, HEADERS), CheckState.PASS),
        (Timing(1.5, 0.01, 16, HEADERS), Timing(0.4, 1.0, 16, HEADERS), CheckState.FAIL),
        (Timing(1.5, 0.01, 16, HEADERS), None, CheckState.FAIL),
        (Timing(0.2, 1.0, 16, HEADERS), None, CheckState.PASS),
        (Timing(0.2, 0.0, 1, HEADERS), None, CheckState.SKIP),
        (Timing(0.2, 0.001, 16, HEADERS), Timing(0.2, 0.002, 16, HEADERS), CheckState.SKIP),
    ],
)
def test_a_proxy_that_buffers_is_told_from_one_that_does_not(through, direct, state):
    assert state_of(proxy.judge("http://p", through, direct)) is state


class Streaming(http.server.BaseHTTPRequestHandler):
    """A server of streams that hands them out piece by piece, or all at once."""

    pause_s, is_buffering = 0.02, False

    def do_GET(self) -> None:
        self._head("application/json")
        self.wfile.write(b'{"data": [{"id": "m"}]}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._head("text/event-stream")
        held = b""
        for _ in range(body["max_tokens"]):
            time.sleep(self.pause_s)
            held += b'data: {"x": 1}\n\n'
            if not self.is_buffering:
                self.wfile.write(held)
                held = b""
        self.wfile.write(held + b"data: [DONE]\n\n")

    def _head(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        if not self.is_buffering:
            for name, value in HEADERS.items():
                self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("is_buffering", [False, True])
def test_the_url_is_measured(tfctl, is_buffering):
    handler = type("Handler", (Streaming,), {"is_buffering": is_buffering})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        outcome = tfctl("doctor", "--json", "--url", f"http://127.0.0.1:{server.server_port}/v1")
        server.shutdown()
    states = {check["name"]: check["state"] for check in json.loads(outcome.out)["checks"]}
    assert (states["url"], states["url headers"]) == (("fail", "warn") if is_buffering else ("pass", "pass"))


@pytest.mark.parametrize("url", ["ftp://x", "http://127.0.0.1:1", "http://"])
def test_a_url_that_cannot_be_asked(tfctl, url):
    outcome = tfctl("doctor", "--json", "--url", url)
    assert outcome.code == 1
    [check] = [check for check in json.loads(outcome.out)["checks"] if check["name"] == "url"]
    assert check["state"] == "fail"

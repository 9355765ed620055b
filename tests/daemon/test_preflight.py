"""What is checked before an engine is started. Packages and model are the set-up's; here is who calls its checks."""

import sys
import types
from pathlib import Path

import pytest
from daemon_rig import run_daemon, scripted_processes, write_profile

from tokenflow import locations
from tokenflow.errors import HostError, ModelError


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Stands in for `tokenflow.setup`: says what it is told to."""
    said = types.SimpleNamespace(devices=[], package_error=None, model_error=None)

    def check_torch_build(device: str) -> None:
        said.devices.append(device)
        if said.package_error:
            raise said.package_error

    def ensure_demo_model(report) -> Path:
        report("making the demo model", 0.5)
        if said.model_error:
            raise said.model_error
        return Path("/models/demo")

    for name, content in (
        ("packages", {"check_torch_build": check_torch_build}),
        ("model", {"ensure_demo_model": ensure_demo_model}),
    ):
        module = types.ModuleType(f"tokenflow.setup.{name}")
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(f"tokenflow.setup.{name}", module, raising=False)
    monkeypatch.setenv("TOKENFLOW_ENGINE_COMMAND", "[]")
    return said


@pytest.mark.parametrize(
    ("field", "error", "code"),
    [
        ("package_error", HostError("a CUDA build of torch", hint="tfctl engine install --cpu"), "host_unusable"),
        ("model_error", ModelError("the weights are short", hint="tfctl start"), "model_unusable"),
    ],
)
async def test_a_check_that_fails_ends_the_start(home: Path, checks, field: str, error: Exception, code: str):
    setattr(checks, field, error)
    async with run_daemon() as rig:
        operation = await rig.client.start()
        assert (operation["state"], operation["error"]["code"]) == ("failed", code)
        assert operation["error"]["hint"] == error.hint
        assert (await rig.client.get("/v1/status"))["engine"]["state"] == "stopped"
        assert checks.devices == ["cpu"]
    assert scripted_processes(home) == []
    assert not locations.user_state_folder().joinpath("engine.log").exists()


async def test_progress_of_the_model_is_the_operations(home: Path, checks):
    checks.model_error = ModelError("enough", hint="tfctl start")
    async with run_daemon() as rig:
        operation = await rig.client.start()
        assert (operation["progress"], operation["progress_ratio"]) == ("making the demo model", 0.5)


@pytest.mark.parametrize("port", [0, 30000])
async def test_a_host_that_is_not_this_machine_is_a_matter_of_the_host(home: Path, checks, port: int):
    path = write_profile("elsewhere", "[]")
    # 192.0.2.0/24 is kept for documentation (RFC 5737): no machine has such an address.
    path.write_text(path.read_text().replace("port = 0", f'host = "192.0.2.1"\nport = {port}'))
    async with run_daemon() as rig:
        status, document = await rig.client.ask("POST", "/v1/engine/start", {"profile": "elsewhere"})
        if status < 400:
            document = await rig.client.finished(document)
        error = document["error"]
        assert (error["code"], error["field"]) == ("invalid_configuration", "host")
        assert "192.0.2.1" in error["message"]
        assert error["hint"].startswith("tfctl start elsewhere -- --host 127.0.0.1")

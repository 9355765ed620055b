"""Keys on the real engine: clients need theirs, admin routes are closed to them, and no key is told anywhere."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from engine_rig import Rig

pytestmark = pytest.mark.engine
KEY = "sk-of-the-clients-7c1e"
BODY = json.dumps({"model": "x", "prompt": "Hi", "max_tokens": 1}).encode()
TWO_LAYERS = ["--load-format", "dummy", "--json-model-override-args", '{"num_hidden_layers": 2}']


def status_of(rig: Rig, path: str, key: str | None = None, body: bytes | None = None) -> tuple[int, str]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(f"{rig.url}{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def keyed(own_engine: Rig) -> Rig:
    path = own_engine.folder / "clients.key"
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    args = ["--attention-backend", "torch_native", "--dtype", "float32", "--max-total-tokens", "2048", *TWO_LAYERS]
    args += ["--context-length", "512"]
    own_engine.start_with_profile(engine={"api_key_file": str(path), "args": args})
    return own_engine


def test_keys(keyed: Rig):
    assert status_of(keyed, "/v1/completions", None, BODY)[0] == 401
    assert status_of(keyed, "/v1/completions", "wrong", BODY)[0] == 401
    assert status_of(keyed, "/v1/completions", KEY, BODY)[0] == 200
    for path in ("/flush_cache", "/abort_request", "/pause_generation", "/start_profile", "/update_weights_from_disk"):
        for key in (None, KEY, "wrong"):
            assert status_of(keyed, path, key, b"{}")[0] == 401, (path, key)
    assert status_of(keyed, "/flush_cache", keyed.admin_key, b"")[0] == 200
    assert keyed.status()["engine"]["state"] == "serving"

    info = status_of(keyed, "/server_info", KEY)[1]
    assert '"api_key":"<redacted>"' in info.replace(" ", "")
    log = Path(keyed.status()["engine"]["log"]).read_text(errors="replace")
    pid = keyed.status()["engine"]["pid"]
    whole = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    commands = " ".join(word for process in whole for word in process.cmdline())
    for secret in (KEY, keyed.admin_key):
        assert secret not in info
        assert secret not in log
        assert secret not in commands
    assert "post-warmup freeze_gc failed" not in log, "SGLang's own calls have the keys"

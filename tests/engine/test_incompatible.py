"""An SGLang that the plugin does not know: nothing is hooked, serving is unmodified, and the operator is told."""

import json
import urllib.request

SITE = """
import tokenflow.sglang.compat
tokenflow.sglang.compat.SUPPORTED_VERSION = "0.4.0"
"""


def test_a_version_mismatch_serves_unmodified_and_says_so(own_engine):
    site = own_engine.folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    own_engine.environment["PYTHONPATH"] = str(site)

    own_engine.start()
    engine = own_engine.status()["engine"]
    assert engine["state"] == "serving"
    assert engine["plugin"] == "incompatible"
    assert "0.4.0" in engine["plugin_detail"]

    body = json.dumps({"model": engine["model"], "prompt": "Hi", "max_tokens": 2}).encode()
    request = urllib.request.Request(f"{engine['url']}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200
        assert json.load(answer)["usage"]["completion_tokens"] == 2
        assert not [name for name in answer.headers if name.lower().startswith("x-tokenflow")]
    assert own_engine.rows() == {}
    assert own_engine.tfctl("mode", "off").returncode == 1

    own_engine.stop()
    own_engine.assert_nothing_left()

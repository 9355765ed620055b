from types import SimpleNamespace

from tokenflow import link
from tokenflow.sglang import frontend as module
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.frontend import Frontend
from tokenflow.sglang.settings import PluginSettings
from tokenflow.wire import PluginState


def test_a_hook_that_was_not_applied_is_told_once_the_engine_is_ready(monkeypatch):
    frontend = Frontend(PluginSettings(), FaultGuard(), SimpleNamespace(), None)
    frontend.find_unhooked = lambda: ["module.function"]
    assert frontend.answer(link.Ping()).plugin is PluginState.ACTIVE, "SGLang has yet to apply its hooks"
    monkeypatch.setattr(module, "is_engine_ready", lambda: True)
    for _ in range(2):
        reply = frontend.answer(link.Ping())
        assert reply.plugin is PluginState.INCOMPATIBLE
        assert "module.function" in reply.plugin_detail

import asyncio
from types import SimpleNamespace

import pytest
from frontend_rig import Reports

from tokenflow import link
from tokenflow.sglang import frontend as module
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.frontend import Frontend
from tokenflow.sglang.readers import BATCH_READER
from tokenflow.sglang.settings import PluginSettings
from tokenflow.sglang.streams import StreamContext
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


@pytest.mark.parametrize("rid", ["tf-1", "tf-2"])
async def test_an_operator_ends_one_open_request_by_its_exact_id(rid):
    sent = []
    manager = SimpleNamespace(
        rid_to_state={name: SimpleNamespace(finished=False) for name in ("tf-1", "tf-2")}, abort_request=sent.append
    )
    frontend = Frontend(PluginSettings(), FaultGuard(), Reports(), None)
    for name in ("tf-1", "tf-2"):
        stream = StreamContext(name, BATCH_READER, 1.0, manager=manager)
        frontend.open_stream(stream)
        frontend.book.add_choice(stream, name, False)
    reply = await asyncio.to_thread(frontend.answer, link.AbortStream(rid=rid))
    await asyncio.sleep(0)
    assert reply.error_code is None
    assert sent == [rid]
    for wrong in ("tf-", "tf-3", ""):
        reply = await asyncio.to_thread(frontend.answer, link.AbortStream(rid=wrong))
        assert (reply.error_code, reply.error_hint) == ("not_found", "tfctl ps")
    assert sent == [rid]

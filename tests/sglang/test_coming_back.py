"""Who may be paused at all, and how much of what was made its reader can have."""

from types import SimpleNamespace

import pytest
from sglang_fakes import FakeReq

from tokenflow.sglang.driver import _unsent_tokens, can_come_back


@pytest.mark.parametrize(
    "name", ["return_logprob", "return_hidden_states", "return_routed_experts", "return_indexer_topk"]
)
def test_what_is_gathered_step_by_step_is_not_interrupted(name):
    req = FakeReq("a")
    req.make(3)
    assert can_come_back(req)
    setattr(req, name, True)
    assert not can_come_back(req)


def test_what_sglang_holds_back_is_no_runway():
    req = FakeReq("a")
    req.make(30)
    assert _unsent_tokens(SimpleNamespace(req=req, is_streamed=True)) == 0
    req.send_token_offset = 16
    assert _unsent_tokens(SimpleNamespace(req=req, is_streamed=True)) == 14
    assert _unsent_tokens(SimpleNamespace(req=req, is_streamed=False)) == 0

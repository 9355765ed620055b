"""How KV is counted for the policy, on a small tree."""

from types import SimpleNamespace

import pytest
from fake_tree import FakeKvTree
from sglang_fakes import FakeReq, scheduler_with

from tokenflow.policy.tunables import Tunables
from tokenflow.sglang.driver import PolicyDriver
from tokenflow.sglang.kept_kv import KeptKv
from tokenflow.sglang.snapshot import SnapshotBuilder
from tokenflow.sglang.tracker import RequestTracker

HOST_TOKENS = 100


class Stage:
    """Two paused streams and a running one go on from one prompt of 10 tokens, with 5, 7 and 3 of their own."""

    def __init__(self) -> None:
        self.tree = tree = FakeKvTree()
        for node_id, parent, tokens in ((1, 0, 10), (2, 1, 5), (3, 1, 7), (4, 1, 3)):
            tree.grow(node_id, parent, tokens, is_on_host=True)
        self.paused = [self.req("a", 2), self.req("b", 3)]
        self.running = self.req("c", 4)
        self.scheduler = scheduler_with(self.paused, [self.running])
        self.scheduler.tree_cache = tree
        self.kept = KeptKv(self.scheduler)
        for req in self.paused:
            self.kept.keep(req)
            req.kv.holds_kv = False
        self.running.kv.cache_protected_len, self.running.kv.kv_committed_len = 13, 14
        self.evictable_tokens, self.protected_tokens, self.host_unused_tokens = 12, 13, 75
        tree.evictable_size = lambda: self.evictable_tokens
        tree.protected_size = lambda: self.protected_tokens
        pool = SimpleNamespace(size=HOST_TOKENS, available_size=lambda: self.host_unused_tokens)
        tree.cache_controller = SimpleNamespace(mem_pool_host=pool)
        self.tracker = RequestTracker()
        self.driver = PolicyDriver(self.scheduler, self.tracker, Tunables(), self.kept)

    def req(self, rid, node_id):
        req = FakeReq(rid)
        req.make(3)
        req.last_node = node_id
        return req

    def look(self, now_s=1.0):
        SnapshotBuilder(self.tracker).reconcile(self.scheduler, now_s)
        view = self.driver._look(now_s)
        return view.engine, {rid: row for row, rid in enumerate(view.rids)}, view


@pytest.fixture
def stage():
    return Stage()


def test_a_shared_prompt_is_nobodys_to_free(stage):
    engine, row, view = stage.look()
    assert [view.kv_device_tokens[row[rid]] for rid in "abc"] == [15, 17, 14]
    assert [view.kv_shared_tokens[row[rid]] for rid in "abc"] == [10, 10, 10]
    assert [view.kv_both_tokens[row[rid]] for rid in "abc"] == [15, 17, 13]
    # 900 unused; of what could be evicted, 5 + 7 are the paused streams' own. The prompt is in use.
    assert engine.kv_free_tokens == 900


def test_a_prompt_that_only_paused_streams_share_is_counted_once(stage):
    stage.scheduler.running_batch.reqs = []
    stage.evictable_tokens, stage.protected_tokens = 22, 0
    engine, _, _ = stage.look()
    assert engine.kv_free_tokens == 900


def test_host_room_is_what_is_unused_and_what_only_the_host_has_for_nobody(stage):
    engine, _, _ = stage.look()
    assert engine.host_free_tokens == 75  # the other 25 are second copies of what is on the device
    stage.host_unused_tokens = 15
    engine, _, _ = stage.look(2.0)
    assert engine.host_free_tokens == 75  # 60 more lie there that no stream needs
    stage.tree.nodes[2].is_on_device = stage.tree.nodes[3].is_on_device = False
    stage.evictable_tokens = 0
    engine, row, view = stage.look(3.0)
    assert view.kv_host_tokens[row["a"]] == 15
    assert engine.host_free_tokens == 75  # 12 of the 72 there are needed: the paused streams' only copies


def test_what_was_not_written_does_not_count_as_written(stage):
    stage.tree.nodes[3].is_on_host = stage.tree.nodes[4].is_on_host = False
    _, row, view = stage.look()
    assert view.kv_both_tokens[row["b"]] == 10
    assert view.kv_both_tokens[row["c"]] == 10


def test_a_client_that_does_not_drain_its_stream_is_no_reader(stage):
    """However far ahead of it the stream gets, it is the first to make room."""
    _, row, view = stage.look()
    entry = stage.tracker.requests["c"]
    entry.stream.buffer.rate_tok_s = 5.0
    _, row, view = stage.look(1.1)
    assert view.rate_tok_s[row["c"]] == 5.0
    entry.is_blocked = True
    _, row, view = stage.look(1.2)
    assert view.rate_tok_s[row["c"]] != view.rate_tok_s[row["c"]]  # NaN: nobody reads along
    assert stage.driver.far_ahead_rids() == frozenset()  # nothing has been decided yet

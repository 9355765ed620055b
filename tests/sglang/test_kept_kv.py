"""What becomes of paused streams' KV, on a small tree; with SGLang's own: tests/engine."""

from types import SimpleNamespace

import pytest
from fake_tree import FakeKvTree

from tokenflow.sglang.directive import DeviceRelease
from tokenflow.sglang.kept_kv import KeptKv
from tokenflow.sglang.kv_tree import Copies


def req(rid, node):
    return SimpleNamespace(rid=rid, last_node=node, kv=SimpleNamespace(cache_protected_len=0, holds_kv=False))


@pytest.fixture
def tree():
    """A shared prompt (1), two streams that go on from it (2 and 3), the first of them in two pieces (4)."""
    made = FakeKvTree()
    made.grow(1, 0, 10, is_on_host=True)
    made.grow(2, 1, 5, is_on_host=True)
    made.grow(3, 1, 7, is_on_host=True)
    made.grow(4, 2, 3)
    return made


@pytest.fixture
def kept(tree):
    return KeptKv(SimpleNamespace(tree_cache=tree))


def host_locks(tree):
    return {node_id: node.host_locks for node_id, node in tree.nodes.items() if node.host_locks}


def test_a_host_copy_is_held_until_its_stream_runs_again_or_ends(tree, kept):
    kept.keep(req("a", 2))
    kept.keep(req("b", 3))
    assert host_locks(tree) == {2: 1, 3: 1}
    kept.settle([req("a", None)])
    assert host_locks(tree) == {2: 1}
    kept.clear()
    assert host_locks(tree) == {}
    assert len(kept) == 0


def test_a_copy_that_is_written_later_is_held_then(tree, kept):
    kept.keep(req("a", 4))
    assert host_locks(tree) == {}
    tree.nodes[4].is_on_host = True
    kept.settle([req("a", None)])
    assert host_locks(tree) == {4: 1}
    kept.settle([req("a", None)])
    assert host_locks(tree) == {4: 1}


def test_a_tree_that_was_reset_meanwhile_took_the_locks_with_it(tree, kept):
    kept.keep(req("a", 2))
    tree.nodes.clear()
    kept.settle([])
    assert len(kept) == 0


def test_copies_are_counted_along_the_path(tree, kept):
    kept.keep(req("a", 4))
    assert kept.copies(req("a", None)) == Copies(18, 15, 15, 10, 1)
    tree.nodes[4].is_on_host = True
    tree.nodes[4].is_on_device = False
    assert kept.copies(req("a", None)) == Copies(15, 18, 15, 10, 1)


def test_where_the_end_was_dropped_the_rest_is_held_and_counted(tree, kept):
    kept.keep(req("a", 4))
    del tree.nodes[4]
    assert kept.copies(req("a", None)) == Copies(15, 15, 15, 10, 1)
    for _ in range(2):
        kept.settle([req("a", None)])
    assert host_locks(tree) == {2: 1}


def test_a_release_writes_first_and_frees_when_the_copy_has_arrived(tree, kept):
    kept.keep(req("a", 4))
    kept.ask_release(DeviceRelease("a", 100))
    assert kept.take_writes()
    kept.settle([req("a", None)])
    assert tree.nodes[4].is_on_device, "its copy is still on the way"
    tree.land()
    kept.settle([req("a", None)])
    assert [tree.nodes[i].is_on_device for i in (1, 2, 3, 4)] == [True, False, True, False]
    assert kept.released_tokens == 8
    assert host_locks(tree) == {4: 1}


def test_what_others_use_stays_and_is_not_waited_for(tree, kept):
    kept.keep(req("a", 2))
    tree.nodes[4].device_locks = 1  # somebody runs on it
    kept.ask_release(DeviceRelease("a", 15))
    kept.settle([req("a", None)])
    assert tree.nodes[2].is_on_device
    tree.nodes[4].device_locks = 0
    kept.settle([req("a", None)])
    assert tree.nodes[2].is_on_device, "a release that could not be had is over"


def test_what_others_share_stays_and_another_streams_copy_is_not_waited_for(tree, kept):
    kept.keep(req("a", 3))
    tree.grow(5, 1, 2)
    tree._apply_cache_action([5])
    kept.ask_release(DeviceRelease("a", 17))
    kept.settle([req("a", None)])
    assert [tree.nodes[i].is_on_device for i in (1, 3)] == [True, False]
    kept.settle([req("a", None)])
    tree.asked.clear()
    kept.settle([req("a", None)])
    assert tree.asked == [], "a release that could not be had whole is over"


def test_a_release_asks_nothing_about_what_else_is_in_the_tree(tree, kept):
    kept.keep(req("a", 4))
    kept.ask_release(DeviceRelease("a", 8))
    tree.land()
    kept.settle([req("a", None)])
    alone = len(tree.asked)
    kept.keep(req("b", 3))
    for node_id in range(10, 1010):
        tree.grow(node_id, 0, 4, is_on_host=True)
    tree.asked.clear()
    kept.ask_release(DeviceRelease("b", 7))
    kept.settle([req("b", None)])
    assert not tree.nodes[3].is_on_device
    assert len(tree.asked) <= alone


def test_under_write_back_nothing_counts_as_freed_that_sglang_would_copy_first(tree, kept):
    tree.is_write_back = True
    kept.keep(req("a", 4))
    kept.ask_release(DeviceRelease("a", 3, may_give_up=True))
    kept.settle([req("a", None)])
    assert tree.nodes[4].is_on_device
    assert kept.released_tokens == 0
    assert kept.take_freed() == {}


def test_no_more_is_freed_than_was_asked_for_but_for_the_rest_of_a_node(tree, kept):
    kept.keep(req("a", 4))
    kept.ask_release(DeviceRelease("a", 1, may_give_up=True))
    kept.settle([req("a", None)])
    assert 4 not in tree.nodes
    assert tree.nodes[2].is_on_device
    assert not kept.take_writes()


def test_what_may_be_given_up_is_dropped_at_once_and_what_may_not_is_never_lost(tree, kept):
    tree.cache_controller = None
    alone = KeptKv(SimpleNamespace(tree_cache=tree))
    alone.keep(req("a", 4))
    alone.ask_release(DeviceRelease("a", 3))
    alone.settle([req("a", None)])
    assert 4 in tree.nodes
    alone.ask_release(DeviceRelease("a", 3, may_give_up=True))
    alone.settle([req("a", None)])
    assert 4 not in tree.nodes


def test_a_stream_that_has_ended_while_its_copy_was_on_the_way_leaves_nothing(tree, kept):
    kept.keep(req("a", 4))
    kept.ask_release(DeviceRelease("a", 3))
    kept.settle([])
    tree.land()
    kept.settle([])
    assert host_locks(tree) == {}
    assert tree.nodes[4].is_on_device


def test_of_a_running_stream_only_what_the_host_has_counts_as_written(tree, kept):
    running = req("a", 4)
    running.kv.cache_protected_len = 18
    assert kept.written_tokens(running) == 15
    tree.nodes[4].is_on_host = True
    assert kept.written_tokens(running) == 18
    running.last_node = 99
    assert kept.written_tokens(running) == 0

"""Several ranks on small stand-ins for SGLang's broadcast and its collectives; the real ones: tests/engine."""

import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from sglang_fakes import FakeReq, scheduler_with

from tokenflow.policy.states import Mode
from tokenflow.sglang.actuator import Actuator
from tokenflow.sglang.attach import Rank
from tokenflow.sglang.directive import Directive
from tokenflow.sglang.rank_exchange import RankExchange, digest_of
from tokenflow.sglang.scheduler_hooks import SchedulerHooks
from tokenflow.sglang.settings import PluginSettings

LAST = SimpleNamespace(forward_mode=SimpleNamespace(is_extend=lambda: False), reqs=[])


class Meeting(RankExchange):
    """Its ranks meet in `agree` as they would in the collective."""

    def __init__(self, rank, table):
        super().__init__(rank, 2)
        self.table = table

    def agree(self, digest, has_failed):
        self.table["entries"][self.rank] = (digest, has_failed)
        self.table["barrier"].wait(10)
        entries = self.table["entries"].values()
        agreed = not any(failed for _, failed in entries) and len({digest for digest, _ in entries}) == 1
        self.table["barrier"].wait(10)
        return agreed


class Leader:
    def __init__(self):
        self.governor = self
        self.spent_s = 0.0
        self.next = None
        self.blockers = []

    def on_loop(self):
        pass

    def on_loop_disabled(self):
        pass

    def decide(self, now_s):
        return self.next

    def note(self, paused, now_s):
        pass

    def note_resumed(self, now_s):
        pass

    def note_released(self):
        pass

    def end_turn(self):
        pass

    def stop_enforcing(self, blocker):
        self.blockers.append(blocker)


class Ranks:
    def __init__(self):
        table = {"barrier": threading.Barrier(2), "entries": {}}
        self.leader = Leader()
        self.schedulers, self.hooks, self.seen = [], [], [[], []]
        self.next_arguments = [None, None]
        for rank in (0, 1):
            scheduler = scheduler_with([FakeReq("w")], [FakeReq("x"), FakeReq("y")])
            scheduler.tree_cache.cache_controller = None
            scheduler.resets = []
            scheduler.tree_cache.reset = lambda done=scheduler.resets: done.append("tree")
            scheduler.req_to_token_pool = SimpleNamespace(
                clear=lambda done=scheduler.resets: done.append("rows"), reset_aux_cache_allocator=lambda: None
            )
            scheduler.token_to_kv_pool_allocator.clear = lambda done=scheduler.resets: done.append("kv")
            hooks = SchedulerHooks(Path(), PluginSettings())
            exchange = Meeting(rank, table)
            hooks._rank = Rank(scheduler, Actuator(scheduler), exchange, self.leader if rank == 0 else None)
            self.schedulers.append(scheduler)
            self.hooks.append(hooks)

    def turn(self, directive, is_skipped=False):
        """Both ranks receive and choose a batch, as SGLang's loop does."""
        self.leader.next = directive
        wire = []

        def broadcast(receiver, local_reqs):
            if is_skipped:
                return []
            if receiver == 0:
                wire.extend(local_reqs)
            return ["request", *wire]

        self.seen[0] = self.hooks[0].around_receive(broadcast, 0, local_reqs=["abort"])
        self.seen[1] = self.hooks[1].around_receive(broadcast, 1, local_reqs=["ignored"])
        threads = [threading.Thread(target=self.choose, args=(rank,)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()

    def choose(self, rank):
        scheduler = self.schedulers[rank]
        self.next_arguments[rank] = self.hooks[rank].before_next_batch(
            scheduler, running_batch=scheduler.running_batch, last_batch=LAST
        )

    def modes(self):
        return [hooks._rank.actuator.mode for hooks in self.hooks]

    def running(self):
        return [[req.rid for req in scheduler.running_batch.reqs] for scheduler in self.schedulers]


@pytest.fixture
def ranks(monkeypatch):
    common = ModuleType("sglang.srt.mem_cache.common")

    def release(req, tree, *, checkpoint):
        assert req.kv.holds_kv
        req.kv.holds_kv = False

    common.release_kv_cache = release
    mem_cache = ModuleType("sglang.srt.mem_cache")
    mem_cache.common = common
    for name, module in (
        ("sglang", ModuleType("sglang")),
        ("sglang.srt", ModuleType("sglang.srt")),
        ("sglang.srt.mem_cache", mem_cache),
        ("sglang.srt.mem_cache.common", common),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    return Ranks()


def test_all_ranks_carry_out_what_rank_0_decided_and_sglang_does_not_see_it(ranks):
    ranks.turn(Directive(1, Mode.ENFORCE, pauses=("x",), held_back=("w", "x")))
    assert ranks.running() == [["y"], ["y"]]
    assert ranks.seen == [["request", "abort"], ["request", "abort"]]
    assert ranks.modes() == [Mode.ENFORCE, Mode.ENFORCE]
    assert digest_of(ranks.schedulers[0]) == digest_of(ranks.schedulers[1])
    assert [hooks.guard.fault_count for hooks in ranks.hooks] == [0, 0]
    ranks.turn(Directive(2, Mode.OBSERVE))
    assert ranks.modes() == [Mode.OBSERVE, Mode.OBSERVE]


def test_what_was_not_broadcast_is_carried_out_by_nobody(ranks):
    ranks.turn(Directive(1, Mode.ENFORCE, pauses=("x",)), is_skipped=True)
    assert ranks.running() == [["x", "y"], ["x", "y"]]
    assert ranks.modes() == [Mode.OBSERVE, Mode.OBSERVE]


def test_after_a_follower_has_failed_all_ranks_start_over_in_the_same_turn(ranks):
    def break_down(*args):
        raise RuntimeError("planted")

    ranks.schedulers[1].running_batch.release_req = break_down
    ranks.turn(Directive(1, Mode.ENFORCE, pauses=("x",)))
    assert ranks.modes() == [Mode.OBSERVE, Mode.OBSERVE]
    assert ranks.leader.blockers == ["rank_skew"]
    assert "rank_skew" in ranks.hooks[0].guard.last_fault
    assert ranks.running() == [[], []]
    queues = [[req.rid for req in scheduler.waiting_queue] for scheduler in ranks.schedulers]
    assert queues == [["w", "x", "y"], ["w", "x", "y"]]
    for scheduler, (arguments, options) in zip(ranks.schedulers, ranks.next_arguments, strict=True):
        assert scheduler.resets == ["tree", "rows", "kv"]
        assert arguments == (scheduler,)
        assert options == {"running_batch": scheduler.running_batch, "last_batch": None}
    ranks.turn(None)
    assert ranks.next_arguments == [None, None]


def test_ranks_that_differ_are_found_within_a_few_directives(ranks):
    ranks.schedulers[1].waiting_queue.clear()
    for sequence in range(1, 17):
        ranks.turn(Directive(sequence, Mode.ENFORCE))
        if ranks.leader.blockers:
            break
    assert ranks.leader.blockers == ["rank_skew"]
    assert sequence == 16
    assert ranks.modes() == [Mode.OBSERVE, Mode.OBSERVE]


def test_a_rank_0_that_turns_itself_off_leaves_no_rank_enforcing(ranks):
    ranks.turn(Directive(1, Mode.ENFORCE))
    for _ in range(20):
        ranks.hooks[0].guard.record("planted", RuntimeError())
    ranks.turn(Directive(2, Mode.ENFORCE, pauses=("x",)))
    assert ranks.modes() == [Mode.OFF, Mode.OFF]
    assert ranks.running() == [["x", "y"], ["x", "y"]]

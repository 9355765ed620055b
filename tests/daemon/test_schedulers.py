"""Several schedulers as one engine: what they tell together, how they are, and commands that all take or none."""

import asyncio
import contextlib

import msgspec
import pytest
import zmq
import zmq.asyncio
from hypothesis import given
from hypothesis import strategies as st
from telemetry_samples import stream, telemetry

from tokenflow import link
from tokenflow.counters import Counters
from tokenflow.errors import TimedOutError
from tokenflow.policy.states import Mode, Reason
from tokenflow.wire import Capacity, EngineState, PluginState, Quality, Tail
from tokenflowd.command_channel import CommandChannel
from tokenflowd.merging import merged
from tokenflowd.observation import Limits
from tokenflowd.request_book import RequestBook
from tokenflowd.scheduler_book import SchedulerBook
from tokenflowd.scheduler_channels import SchedulerChannels

LIMITS = Limits(busy_after_s=5.0, wedged_after_s=60.0, telemetry_stale_after_s=3.0)


def message(index: int, sent_s: float, **fields) -> link.Telemetry:
    made = telemetry(stream(), sent_s=sent_s)
    made.streams[0].rid = f"tf-{index}"
    made.streams[0].arrival_s = 10.0 - index
    place = {"scheduler_index": index, "scheduler_count": 2, "watched_count": 2, "pid": 100 + index}
    return msgspec.structs.replace(made, **(place | fields))


def counters(tokens: int, ttft_s: float) -> Counters:
    made = Counters()
    made.add_tokens("reading", tokens)
    made.add_preemption("reading", Reason.PREEMPTED_SURPLUS)
    made.observe_ttft("reading", ttft_s)
    return made


def test_one_scheduler_is_told_as_it_came():
    alone = message(0, 20.0)
    assert merged([alone]) is alone


def test_sums_the_worst_and_the_lesser_mode():
    first = message(
        0,
        20.0,
        mode=Mode.ENFORCE,
        step_count=5,
        revision=3,
        capacity=Capacity(capacity_tok_s=100.0, demand_tok_s=60.0, waiting_count=1, waiting_age_s=2.0),
        quality=Quality(ttft_s=Tail(p50=1.0, p99=2.0, count=10), raw_tok_s=40.0, preemption_total=3),
        counters=counters(30, 0.3),
    )
    second = message(
        1,
        21.0,
        mode=Mode.OBSERVE,
        step_count=7,
        revision=2,
        has_work=False,
        plugin=PluginState.DISABLED,
        plugin_detail="too many faults",
        capacity=Capacity(capacity_tok_s=50.0, demand_tok_s=15.0, waiting_count=2, waiting_age_s=9.0),
        quality=Quality(ttft_s=Tail(p50=0.5, p99=4.0, count=5), raw_tok_s=10.0, preemption_total=1),
        counters=counters(12, 4.0),
    )
    whole = merged([first, second])
    assert (whole.pid, whole.sent_s, whole.step_count, whole.has_work) == (100, 21.0, 12, True)
    assert merged([first, msgspec.structs.replace(second, plugin=PluginState.ACTIVE)]).mode is Mode.OBSERVE
    assert (whole.mode, whole.revision, whole.plugin, whole.plugin_detail) == (
        Mode.ENFORCE,
        5,
        PluginState.DISABLED,
        "too many faults",
    )
    assert whole.capacity == Capacity(
        capacity_tok_s=150.0, demand_tok_s=75.0, headroom_ratio=0.5, waiting_count=3, waiting_age_s=9.0
    )
    assert whole.quality.ttft_s == Tail(p50=1.0, p99=4.0, count=15)
    assert (whole.quality.raw_tok_s, whole.quality.preemption_total) == (50.0, 4)
    assert [one.rid for one in whole.streams] == ["tf-1", "tf-0"], "in order of arrival"
    assert whole.counters is not None
    assert whole.counters.generated_tokens == {"reading": 42}
    assert whole.counters.preemptions == {"reading": {"preempted_surplus": 2}}
    assert whole.counters.ttft_s["reading"].count == 2
    assert first.counters == counters(30, 0.3), "the parts stay as they were"


def test_capacity_is_known_once_it_is_known_of_all():
    known = message(0, 20.0, capacity=Capacity(capacity_tok_s=100.0))
    assert merged([known, message(1, 20.0)]).capacity.capacity_tok_s is None
    assert merged([known], is_complete=False).capacity.capacity_tok_s is None
    assert merged([known, known]).capacity.capacity_tok_s == 200.0


def test_the_oldest_step_in_progress_and_the_fullest_host_pool_are_told():
    roomy, full = link.KvPools(100, 0, 0, 100, 60, 0), link.KvPools(100, 0, 0, 100, 0, 1)
    idle = message(0, 20.0, has_work=False, last_step_s=3.0, kv_pools=roomy)
    busy = [message(n, 20.0, last_step_s=20.0 - n, kv_pools=full) for n in (1, 2)]
    whole = merged([idle, *busy])
    assert (whole.last_step_s, whole.kv_pools) == (18.0, full)
    assert merged([idle, idle]).last_step_s == 3.0


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 80)), min_size=1, max_size=6))
def test_nothing_that_is_counted_is_lost_or_counted_twice(parts):
    whole = merged([message(n, 20.0, counters=counters(*part)) for n, part in enumerate(parts)])
    assert whole.counters is not None
    assert sum(whole.counters.generated_tokens.values()) == sum(tokens for tokens, _ in parts)
    assert whole.counters.ttft_s["reading"].sum == pytest.approx(sum(ttft_s for _, ttft_s in parts))
    assert whole.counters.ttft_s["reading"].count == len(parts)
    assert len(whole.streams) == len(parts)


def test_an_engine_is_as_well_as_the_worst_of_its_schedulers():
    book = SchedulerBook()
    assert (book.whole, book.heard_s, book.judge(0.0, LIMITS)) == (None, None, EngineState.SERVING)
    book.take([message(1, 100.0, last_step_s=20.0, has_work=False), message(0, 100.0, last_step_s=100.0)])
    assert [one.scheduler_index for one in book.each] == [0, 1]
    book.take([message(1, 101.0, last_step_s=20.0)])  # work has come: its last step is long past, and no reproach
    book.take([message(0, 160.0, last_step_s=160.0)])
    assert book.judge(102.0, LIMITS) is EngineState.SERVING
    assert book.judge(110.0, LIMITS) is EngineState.BUSY
    assert book.judge(162.0, LIMITS) is EngineState.WEDGED, "the other one goes on, and does not hide it"
    assert book.heard_s == 101.0


def test_one_that_was_never_heard_counts_by_its_silence():
    book = SchedulerBook()
    book.take([message(0, 100.0, has_work=False)])
    assert (book.is_complete, book.heard_s) == (False, None)
    assert book.judge(101.0, LIMITS, serving_since_s=99.5) is EngineState.SERVING
    book.take([message(0, 160.0, has_work=False)])
    assert book.judge(160.0, LIMITS, serving_since_s=99.5) is EngineState.WEDGED
    book.take([message(1, 160.5, has_work=False)])
    assert (book.is_complete, book.heard_s) == (True, 160.0)
    assert book.judge(161.0, LIMITS, serving_since_s=99.5) is EngineState.SERVING


def test_one_that_could_not_be_attached_is_not_waited_for():
    bound = [2]
    book = SchedulerBook(lambda: bound[0])
    book.take([message(0, 100.0, has_work=False)])
    assert not book.is_complete
    bound[0] = 1
    assert (book.is_complete, book.heard_s) == (True, 100.0)


def test_readers_are_followed_to_when_their_own_scheduler_spoke():
    book, one, other = RequestBook(), message(0, 12.0), message(1, 300.0)
    book.take([one, other])
    rows = {row.rid: row for row in book.rows()}
    assert list(rows) == ["tf-1", "tf-0"], "in order of arrival"
    assert rows["tf-0"].stall_s == 0.0
    assert rows["tf-1"].stall_s > 200.0


class Scheduler:
    """One that answers as it is told, at its end of a link."""

    def __init__(self, context, folder, index: int) -> None:
        self.mode, self.revision, self.refuses = Mode.OBSERVE, 0, set[type]()
        self.values = {"quantum_s": 1.0}
        self.is_disabled = self.is_hung = False
        self.answers_left = 1000
        self.rids = {f"tf-{index}"}
        self.taken: list[link.Command] = []
        self._socket = context.socket(zmq.ROUTER)
        self._socket.bind(f"ipc://{folder / link.own_socket(link.SCHEDULER_SOCKET, index)}")
        self._task = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            *envelope, body = await self._socket.recv_multipart()
            self.answers_left -= 1
            if self.is_hung or self.answers_left < 0:
                continue
            await self._socket.send_multipart([*envelope, link.encode(self._answer(link.decode_command(body)))])

    def _answer(self, command: link.Command) -> link.Reply:
        code = "unsupported" if self._refuses(command) else None
        if isinstance(command, link.PauseRequest) and code is None and command.rid not in self.rids:
            code = "not_found"
        if isinstance(command, link.Tune) and command.if_revision not in (None, self.revision):
            code = "revision_mismatch"
        is_dry_run = isinstance(command, link.Tune) and command.dry_run
        if code is None and not is_dry_run and not isinstance(command, link.Ping):
            self.taken.append(command)
            if isinstance(command, link.SetMode):
                self.mode = command.mode
            if isinstance(command, link.Tune):
                self.values |= command.changes
            self.revision += 1
        return link.Reply(
            plugin_version="1",
            pid=1,
            plugin=PluginState.DISABLED if self.is_disabled else PluginState.ACTIVE,
            mode=self.mode,
            revision=self.revision,
            tunables=dict(self.values),
            error_code=code,
        )

    def _refuses(self, command: link.Command) -> bool:
        is_dry_run = isinstance(command, link.Tune) and command.dry_run
        is_refused = type(command) in self.refuses and not is_dry_run
        return is_refused or (self.is_disabled and not isinstance(command, link.Ping))

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._socket.close(linger=0)


@pytest.fixture
async def pair(tmp_path, monkeypatch):
    """Two schedulers, and the daemon's channels to them."""
    monkeypatch.setattr(CommandChannel.ask, "__defaults__", (0.5,))  # so long is waited for one that hangs
    context = zmq.asyncio.Context()
    schedulers = [Scheduler(context, tmp_path, index) for index in range(2)]
    channels = SchedulerChannels(context, tmp_path)
    channels.expect(2)
    yield channels, *schedulers
    channels.close()
    for scheduler in schedulers:
        await scheduler.close()
    context.term()


async def test_a_value_is_taken_by_all(pair):
    channels, first, second = pair
    reply = await channels.ask(link.Tune(changes={"quantum_s": 2.0}))
    assert (reply.error_code, reply.revision) == (None, 2)
    assert first.values == second.values == {"quantum_s": 2.0}


@pytest.mark.parametrize("is_hung", [False, True])
async def test_a_value_that_one_does_not_take_is_taken_by_none(pair, is_hung):
    channels, first, second = pair
    if is_hung:
        second.answers_left = 2  # it says how it is, and accepts the value on trial
        with pytest.raises(TimedOutError):
            await channels.ask(link.Tune(changes={"quantum_s": 2.0}))
    else:
        second.refuses.add(link.Tune)
        assert (await channels.ask(link.Tune(changes={"quantum_s": 2.0}))).error_code == "unsupported"
    assert first.values == second.values == {"quantum_s": 1.0}


async def test_mode_enforce_is_taken_by_all_or_none(pair):
    channels, first, second = pair
    second.refuses.add(link.SetMode)
    past = link.SetMode(mode=Mode.ENFORCE, deadline_s=1.0)
    assert (await channels.ask(past)).error_code == "unsupported"
    assert (first.mode, second.mode) == (Mode.OBSERVE, Mode.OBSERVE)
    assert first.taken[-1] == link.SetMode(mode=Mode.OBSERVE), "what undoes it does not come too late"
    second.refuses.clear()
    assert (await channels.ask(link.SetMode(mode=Mode.ENFORCE))).error_code is None
    assert (first.mode, second.mode) == (Mode.ENFORCE, Mode.ENFORCE)


async def test_mode_off_reaches_whoever_can_hear(pair):
    channels, first, second = pair
    first.mode = second.mode = Mode.ENFORCE
    first.is_hung = True
    with pytest.raises(TimedOutError):
        await channels.ask(link.SetMode(mode=Mode.OFF))
    assert second.mode is Mode.OFF


async def test_a_plugin_that_has_turned_itself_off_is_in_nobodys_way(pair):
    channels, first, second = pair
    first.is_disabled = True
    assert (await channels.ask(link.SetMode(mode=Mode.ENFORCE))).error_code is None
    assert (await channels.ask(link.Tune(changes={"quantum_s": 3.0}))).error_code is None
    assert (await channels.ask(link.PauseRequest(rid="tf-1"))).error_code is None
    assert (second.mode, second.values) == (Mode.ENFORCE, {"quantum_s": 3.0})
    first.values, first.mode = {"quantum_s": 9.0}, Mode.OFF
    told = await channels.ask(link.Ping())
    assert (told.mode, told.tunables) == (Mode.ENFORCE, {"quantum_s": 3.0}), "nor what is asked of those at work"
    second.is_disabled = True
    assert (await channels.ask(link.SetMode(mode=Mode.OFF))).error_code == "unsupported"


async def test_revisions_that_have_come_apart_still_fit(pair):
    channels, _, second = pair
    second.revision = 3
    revision = (await channels.ask(link.Ping())).revision
    assert revision == 3
    mismatch = await channels.ask(link.Tune(changes={"quantum_s": 2.0}, if_revision=2))
    assert (mismatch.error_code, mismatch.revision) == ("revision_mismatch", 3)
    reply = await channels.ask(link.Tune(changes={"quantum_s": 2.0}, if_revision=revision))
    assert (reply.error_code, reply.revision) == (None, 5)


async def test_a_request_is_found_wherever_it_is(pair):
    channels, first, second = pair
    for rid, owner, other in (("tf-0", first, second), ("tf-1", second, first)):
        assert (await channels.ask(link.PauseRequest(rid=rid))).error_code is None
        assert owner.taken.pop() == link.PauseRequest(rid=rid)
        assert other.taken == []
    assert (await channels.ask(link.PauseRequest(rid="tf-nobody"))).error_code == "not_found"
    first.is_hung = True
    assert (await channels.ask(link.PauseRequest(rid="tf-1"))).error_code is None
    with pytest.raises(TimedOutError):
        await channels.ask(link.PauseRequest(rid="tf-0"))


async def test_one_that_works_with_other_values_is_noticed(pair):
    channels, _, second = pair
    second.mode = Mode.OFF
    assert (await channels.ask(link.Ping())).mode is Mode.OFF

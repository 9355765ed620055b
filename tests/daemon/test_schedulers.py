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
from tokenflow.policy.states import Mode, Reason
from tokenflow.wire import Capacity, EngineState, PluginState, Quality, Tail
from tokenflowd.merging import merged
from tokenflowd.observation import Limits
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
    assert (whole.mode, whole.revision, whole.plugin, whole.plugin_detail) == (
        Mode.OBSERVE,
        2,
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
    book.take(message(1, 100.0, last_step_s=20.0, has_work=False))
    book.take(message(0, 100.0, last_step_s=100.0))
    assert [one.scheduler_index for one in book.each] == [0, 1]
    book.take(message(1, 101.0, last_step_s=20.0))  # work has come: its last step is long past, and no reproach
    book.take(message(0, 160.0, last_step_s=160.0))
    assert book.judge(102.0, LIMITS) is EngineState.SERVING
    assert book.judge(110.0, LIMITS) is EngineState.BUSY
    assert book.judge(162.0, LIMITS) is EngineState.WEDGED, "the other one goes on, and does not hide it"
    assert book.heard_s == 101.0


class Scheduler:
    """One that answers as it is told, at its end of a link."""

    def __init__(self, context, folder, index: int) -> None:
        self.mode, self.revision, self.refuses = Mode.OBSERVE, 0, set[type]()
        self.rids = {f"tf-{index}"}
        self.taken: list[link.Command] = []
        self._socket = context.socket(zmq.ROUTER)
        self._socket.bind(f"ipc://{folder / link.own_socket(link.SCHEDULER_SOCKET, index)}")
        self._task = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            *envelope, body = await self._socket.recv_multipart()
            await self._socket.send_multipart([*envelope, link.encode(self._answer(link.decode_command(body)))])

    def _answer(self, command: link.Command) -> link.Reply:
        code = "unsupported" if type(command) in self.refuses else None
        if isinstance(command, link.PauseRequest) and command.rid not in self.rids:
            code = "not_found"
        if code is None and not (isinstance(command, link.Tune) and command.dry_run):
            self.taken.append(command)
            if isinstance(command, link.SetMode):
                self.mode = command.mode
            self.revision += isinstance(command, link.Tune)
        reply = link.Reply(plugin_version="1", pid=1, plugin=PluginState.ACTIVE, mode=self.mode, revision=self.revision)
        reply.error_code = code
        return reply

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._socket.close(linger=0)


@pytest.fixture
async def pair(tmp_path):
    """Two schedulers, and the daemon's channels to them."""
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
    assert (reply.error_code, reply.revision) == (None, 1)
    assert first.taken == second.taken == [link.Tune(changes={"quantum_s": 2.0})]


async def test_a_value_that_one_refuses_is_taken_by_none(pair):
    channels, first, second = pair
    second.refuses.add(link.Tune)
    assert (await channels.ask(link.Tune(changes={"quantum_s": 2.0}))).error_code == "unsupported"
    assert first.taken == second.taken == []


async def test_a_mode_that_one_refuses_leaves_all_as_they_were(pair):
    channels, first, second = pair
    second.refuses.add(link.SetMode)
    assert (await channels.ask(link.SetMode(mode=Mode.ENFORCE))).error_code == "unsupported"
    assert (first.mode, second.mode) == (Mode.OBSERVE, Mode.OBSERVE)
    second.refuses.clear()
    assert (await channels.ask(link.SetMode(mode=Mode.ENFORCE))).error_code is None
    assert (first.mode, second.mode) == (Mode.ENFORCE, Mode.ENFORCE)


async def test_a_request_is_found_wherever_it_is(pair):
    channels, first, second = pair
    for rid, owner, other in (("tf-0", first, second), ("tf-1", second, first)):
        assert (await channels.ask(link.PauseRequest(rid=rid))).error_code is None
        assert owner.taken.pop() == link.PauseRequest(rid=rid)
        assert other.taken == []
    assert (await channels.ask(link.PauseRequest(rid="tf-nobody"))).error_code == "not_found"


async def test_one_that_works_with_other_values_is_noticed(pair):
    channels, _, second = pair
    second.mode = Mode.OFF
    assert (await channels.ask(link.Ping())).mode is Mode.OFF

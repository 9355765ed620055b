"""Alarms of what goes wrong slowly, from planted telemetry."""

from collections.abc import Iterable

import msgspec
import pytest
from telemetry_samples import stream, telemetry

from tokenflow.counters import Counters
from tokenflow.link import KvPools, StreamState, Telemetry
from tokenflow.policy.states import Mode, Reason, RequestState
from tokenflow.wire import AlarmKind, EngineInfo, EngineState, PluginState, Quality
from tokenflowd.alarms import Facts, alarms_of
from tokenflowd.observation import Limits
from tokenflowd.trends import Trends

STARVED_AFTER_S = 60.0


def told(messages: Iterable[Telemetry], **facts) -> list[tuple[str, str]]:
    """(kind, message) of the alarms after these messages."""
    trends, last = Trends(), None
    for last in messages:
        trends.take(last, STARVED_AFTER_S)
    assert last is not None
    info = EngineInfo(state=EngineState.SERVING, plugin=PluginState.ACTIVE)
    given = {"silence_s": 0.0, "wants_enforce": False, "wedge": None, "restart_count": 0, **facts}
    limits = Limits(2.0, 60.0, 3.0)
    found = alarms_of(Facts(info=info, limits=limits, log_path="/log", telemetry=last, trends=trends, **given))
    assert all(alarm.hint for alarm in found)
    return [(alarm.kind, alarm.message) for alarm in found]


def paused(count: int, generated: int, state: RequestState = RequestState.RUNNING) -> StreamState:
    sample = stream(state=state)
    sample.preemption_count = count
    sample.buffer.generate(generated)
    return sample


def every(step_s: float, count: int):
    return [100.0 + step_s * number for number in range(count)]


def test_a_quiet_engine_raises_nothing():
    assert told(telemetry(stream(), sent_s=at_s) for at_s in every(1.0, 100)) == []


def test_a_stream_that_is_moved_and_makes_nothing_is_thrash():
    stamps = every(5.0, 10)
    messages = [telemetry(paused(number, 10 + number), sent_s=at_s) for number, at_s in enumerate(stamps)]
    [(kind, message)] = told(messages)
    assert (kind, message) == (AlarmKind.THRASH, "tf-a was paused 8 times in the last 60 s and made 8 tokens in all")


@pytest.mark.parametrize(("count_each", "tokens_each"), [(1, 40), (0, 0)])
def test_pauses_that_pay_are_no_thrash(count_each: int, tokens_each: int):
    messages = [
        telemetry(paused(1 + count_each * number, 10 + tokens_each * number), sent_s=at_s)
        for number, at_s in enumerate(every(5.0, 12))
    ]
    assert told(messages) == []


def test_the_first_pauses_of_a_stream_are_not_all_of_the_last_minute():
    """What happened before the window does not count."""
    messages = [telemetry(paused(50, 60), sent_s=at_s) for at_s in every(5.0, 30)]
    assert told(messages) == []


def test_who_waits_for_long_is_told_with_its_id():
    waiting = stream(state=RequestState.WAITING)  # arrived at 10 s
    messages = [telemetry(waiting, sent_s=at_s) for at_s in (12.0, 65.0)]
    assert told(messages) == []
    messages.append(telemetry(waiting, stream(), sent_s=80.0))
    assert told(messages) == [(AlarmKind.STARVATION, "tf-a has not been started for 70 s")]


def test_a_pause_counts_from_its_begin_and_an_operators_hold_not_at_all():
    stamps = every(5.0, 20)
    for reason, kinds in ((Reason.PREEMPTED_SURPLUS, [AlarmKind.STARVATION]), (Reason.PREEMPTED_OPERATOR, [])):
        sample = stream(state=RequestState.PREEMPTED)
        sample.reason = reason
        assert [kind for kind, _ in told(telemetry(sample, sent_s=at_s) for at_s in stamps)] == kinds
        assert told(telemetry(sample, sent_s=at_s) for at_s in stamps[:10]) == []


def test_tokens_for_clients_that_left():
    def made(zombies_each: int) -> list[Telemetry]:
        return [
            msgspec.structs.replace(
                telemetry(sent_s=at_s), quality=Quality(raw_tok_s=50.0, zombie_tokens_total=zombies_each * number)
            )
            for number, at_s in enumerate(every(5.0, 20))
        ]

    [(kind, message)] = told(made(30))
    assert (kind, message[:4]) == (AlarmKind.ZOMBIES, "360 ")
    assert told(made(12)) == []  # 5 % of what was made, and just not more


def test_a_host_pool_without_room_for_a_while():
    def filled(unused: int, host_only: int, count: int) -> list[Telemetry]:
        pools = KvPools(1000, 10, 500, 2000, unused, host_only)
        return [msgspec.structs.replace(telemetry(sent_s=at_s), kv_pools=pools) for at_s in every(1.0, count)]

    [(kind, _)] = told(filled(5, 0, 40))
    assert kind is AlarmKind.HOST_POOL_FULL
    assert told(filled(5, 0, 20)) == []
    assert told(filled(5, 500, 40)) == []
    assert told(filled(100, 0, 40)) == []
    assert told([*filled(5, 0, 40), telemetry(sent_s=200.0)]) == []


def test_rank_skew_and_a_blocked_mode():
    skewed = msgspec.structs.replace(telemetry(sent_s=100.0), blocked_by=["rank_skew"])
    assert [kind for kind, _ in told([skewed], wants_enforce=True)] == [AlarmKind.RANK_SKEW]
    blocked = msgspec.structs.replace(telemetry(sent_s=100.0), blocked_by=["--pp-size 2"])
    assert [kind for kind, _ in told([blocked], wants_enforce=True)] == [AlarmKind.ENFORCE_BLOCKED]
    assert told([blocked]) == []
    assert told([msgspec.structs.replace(blocked, mode=Mode.ENFORCE)], wants_enforce=True) == []


@pytest.mark.parametrize("count", [1, 2])
def test_schedulers_that_nobody_watches_are_told(count: int):
    message = telemetry(stream(), sent_s=100.0)
    message.scheduler_count = count
    found = told([message])
    assert [kind for kind, _ in found] == [AlarmKind.SCHEDULERS_UNSEEN] * (count - 1)
    assert count == 1 or "has 2 schedulers and only the first is watched" in found[0][1]
    message.watched_count = count
    assert told([message]) == []


def full(at_s: float, preemptions: int, made_tok_s: float) -> Telemetry:
    message = telemetry(stream(), sent_s=at_s)
    message.counters = Counters(
        preemptions={"reading": {Reason.PREEMPTED_KV_FULL: preemptions, "preempted_surplus": 900}}
    )
    message.quality = Quality(stall_s_total=0.0, raw_tok_s=made_tok_s)
    return message


def test_a_storm_of_preemptions_is_told_with_what_it_costs():
    calm = [full(at_s, 5, 200.0) for at_s in every(5.0, 13)]
    storm = [full(160.0 + 5.0 * number, 5 + 4 * number, 20.0) for number in range(1, 13)]
    assert told(calm) == []
    [(kind, message)] = told([*calm, *storm])
    assert kind == AlarmKind.PREEMPTION_STORM
    assert message == (
        "KV memory is full: streams were taken out 48 times in the last 60 s; 20 tok/s were made, after 200 before"
    )


@pytest.mark.parametrize(("per_sample", "count"), [(2, 30), (0, 30), (4, 5)])
def test_a_few_preemptions_or_a_short_burst_are_no_storm(per_sample: int, count: int):
    assert told(full(100.0 + 5.0 * number, per_sample * number, 20.0) for number in range(count)) == []


def test_a_storm_that_has_passed_is_told_no_more():
    storm = [full(100.0 + 5.0 * number, 4 * number, 20.0) for number in range(13)]
    calm = [full(165.0 + 5.0 * number, 48, 200.0) for number in range(13)]
    assert [kind for kind, _ in told(storm)] == [AlarmKind.PREEMPTION_STORM]
    assert told([*storm, *calm]) == []

"""The seed article's schedule of three requests, event by event, through the whole simulated engine.

Two slots of 40 tok/s, rates 20, 30 and 25, the third from 2 s; tests/policy has the same for the policy alone.
"""

import pytest
from sim_rig import by_rid, simulated, small_gpu

from tokenflow.policy.plan import Action, Cause
from tokenflow.policy.tunables import Tunables
from tokenflow.sim.performance import Link
from tokenflow.sim.policy_scheduler import PolicyScheduler
from tokenflow.sim.scheduler import StepStyle
from tokenflow.sim.workload import SimRequest

STEP_S = 0.025
REQUESTS = [SimRequest(0.0, 1, 600, 20.0), SimRequest(0.0, 1, 600, 30.0), SimRequest(2.0, 1, 600, 25.0)]
R1, R2, R3 = "r000001", "r000002", "r000003"


@pytest.fixture(params=list(StepStyle))
def told(request):
    """(engine, [(time, rid, action, cause)]) of the article's run."""
    events = []

    def note(now_s, look, plan):
        events.extend((now_s, one.rid, one.action, one.cause) for one in plan.decisions)

    gpu = small_gpu(
        step_fixed_s=STEP_S, prefill_fixed_s=STEP_S, stream_s=0, kv_token_s=0, piece_s=0, new_token_s=0, pair_s=0,
        link=Link(1e12, 1e12, fixed_s=0.0),
    )  # fmt: skip
    scheduler = PolicyScheduler(Tunables(surplus_s=3.0, reserve_s=1.0), style=request.param)
    engine = simulated(REQUESTS, scheduler=scheduler, gpu=gpu, slots=2, kv=10**6, host=10**6, on_plan=note)
    return engine, events


def test_the_first_events_are_the_article_s(told):
    _, events = told
    swaps = [(rid, action, cause) for _, rid, action, cause in events]
    assert swaps[:6] == [
        (R1, Action.ADMIT, Cause.FREE_PLACE),
        (R2, Action.ADMIT, Cause.FREE_PLACE),
        (R1, Action.PAUSE_KEEP, Cause.FIRST_TOKEN),
        (R3, Action.ADMIT, Cause.FIRST_TOKEN),
        (R2, Action.PAUSE_KEEP, Cause.RESCUE),
        (R1, Action.RESUME, Cause.RESCUE),
    ]
    times = [time_s for time_s, *_ in events]
    assert times[0] == times[1] == 0.0
    assert times[2] == times[3] == pytest.approx(3.0, abs=0.1)
    assert times[4] == times[5] == pytest.approx(5.0, abs=0.1)


def test_nobody_is_paused_when_the_third_arrives_and_it_is_served_within_a_second_or_so(told):
    engine, events = told
    assert not [event for event in events if 1.9 < event[0] < 2.9]
    assert by_rid(engine)[R3].figures.ttft_s == pytest.approx(1.0, abs=0.1)


def test_no_reader_stalls_to_the_end(told):
    engine, events = told
    assert sum(action.is_pause for _, _, action, _ in events) > 10
    assert [record.figures.stall_s for record in engine.clerk.records] == [0.0, 0.0, 0.0]

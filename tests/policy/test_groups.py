"""Swaps in groups: what the step of a return costs everybody else, waiting for company, and who rides along."""

from policy_rows import decide, engine_with, paused, running, swaps_of, waiting

SLOW_STEPS = {"prefill_fixed_s": 0.1}


def busy_engine(count, **changes):
    return engine_with(slot_count=count, step_s=0.1, costs=SLOW_STEPS, **changes)


def far_ahead(count):
    return [running(f"ahead{i}", 9.0, length_tokens=200) for i in range(count)]


def behind(count):
    return [paused(f"behind{i}", 1.6, length_tokens=200) for i in range(count)]


def test_sharing_alone_must_be_worth_the_step_that_it_costs_the_others():
    """Of eight that run one is far ahead: seven would lose a step of 0.1 s, for one second's worth of one slot."""
    others = [running(f"r{i}", 5.0, length_tokens=10_000) for i in range(7)]
    assert swaps_of(decide(*behind(1), *far_ahead(1), *others, engine=busy_engine(8))) == []
    enough = decide(*behind(6), *far_ahead(6), *others[:2], engine=busy_engine(8))
    assert len(swaps_of(enough)) == 6
    quick = engine_with(slot_count=8, step_s=0.01, costs={"prefill_fixed_s": 0.01})
    assert len(swaps_of(decide(*behind(1), *far_ahead(1), *others, engine=quick))) == 1


def test_a_swap_waits_a_step_for_company():
    """One has made its first run, seven are a token short of it: one group of eight in a step, not one and seven."""
    rows = [running("early", 9.0, run_tokens=8, is_first_run=True, since_s=999.5)]
    rows += [running(f"r{i}", 9.0, run_tokens=7, is_first_run=True, since_s=999.5) for i in range(7)]
    seekers = [waiting(f"w{i}") for i in range(8)]
    assert swaps_of(decide(*seekers, *rows, engine=busy_engine(8))) == []
    assert len(swaps_of(decide(*seekers[:1], *rows, engine=busy_engine(8)))) == 1  # nobody else asks
    late = [running(f"r{i}", 9.0, run_tokens=2, is_first_run=True, since_s=999.5) for i in range(7)]
    assert len(swaps_of(decide(*seekers, rows[0], *late, engine=busy_engine(8)))) == 1  # too long to wait


def test_nobody_runs_dry_waiting_for_company():
    rows = [running("early", 9.0)] + [running(f"r{i}", 9.0, run_tokens=9, since_s=999.05) for i in range(7)]
    due = [paused("due", 0.3), paused("next", 1.2)]
    assert swaps_of(decide(*due, *rows, engine=busy_engine(8))) == [("early", "due")]


def test_riders_need_a_group_that_goes_anyway():
    rows = [running("a", 30.0), running("b", 30.0)]
    assert swaps_of(decide(paused("p", 6.0), *rows)) == []
    assert len(swaps_of(decide(paused("p", 6.0), paused("due", 0.3), *rows))) == 2
    assert len(swaps_of(decide(paused("p", 6.0), waiting("w"), *rows))) == 1  # not while first tokens wait

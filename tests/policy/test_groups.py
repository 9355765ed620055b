"""Swaps in groups: what the step of a return costs everybody else, waiting for company, and who rides along."""

from policy_rows import NOW_S, decide, engine_with, paused, running, swaps_of, waiting

SLOW_STEPS = {"prefill_fixed_s": 0.1}


def busy_engine(count, **changes):
    return engine_with(slot_count=count, step_s=0.1, costs=SLOW_STEPS, **changes)


def test_a_swap_waits_a_step_for_company():
    """One has made its first run, seven are a token short of it: one group of eight in a step, not one and seven."""
    rows = [running("early", 9.0, run_tokens=8, is_first_run=True, since_s=999.5)]
    rows += [running(f"r{i}", 9.0, run_tokens=7, is_first_run=True, since_s=999.5) for i in range(7)]
    seekers = [waiting(f"w{i}") for i in range(8)]
    assert swaps_of(decide(*seekers, *rows, engine=busy_engine(8))) == []
    assert len(swaps_of(decide(*seekers[:1], *rows, engine=busy_engine(8)))) == 1  # nobody else asks
    late = [running(f"r{i}", 9.0, run_tokens=2, is_first_run=True, since_s=999.5) for i in range(7)]
    assert len(swaps_of(decide(*seekers, rows[0], *late, engine=busy_engine(8)))) == 1  # too long to wait


def test_one_waits_for_seven_but_seven_do_not_wait_long_for_one():
    """A group of its own costs eight slots a step of 0.1 s: 8 tokens, or 1.3 s of reading at 6 tok/s, rotation after
    rotation. What is weighed against it is for how long readers would have nothing to read meanwhile."""
    coming = [running(f"r{i}", 9.0, run_tokens=9, since_s=999.3) for i in range(7)]
    due = [paused(f"due{i}", 0.05) for i in range(8)]
    assert swaps_of(decide(*due, running("early", 9.0), *coming, engine=busy_engine(8))) == []
    ready = [running(f"early{i}", 9.0) for i in range(7)]
    last = running("r0", 9.0, run_tokens=2, since_s=999.95)
    assert len(swaps_of(decide(*due, *ready, last, engine=busy_engine(8)))) == 7


def test_all_first_tokens_wait_a_step_until_nobody_is_left_behind():
    """Three may leave safely now and a fourth in a step: whoever is left behind would wait for a whole first run."""
    rows = [running(f"r{i}", 3.0) for i in range(3)]
    seekers = [waiting(f"w{i}") for i in range(4)]
    soon = running("soon", 1.5, rate_tok_s=1.0)  # gains 0.9 s of runway a step
    assert swaps_of(decide(*seekers, *rows, soon, engine=busy_engine(4))) == []
    never = running("never", 1.0, rate_tok_s=9.0)
    assert len(swaps_of(decide(*seekers, *rows, never, engine=busy_engine(4)))) == 3


def test_who_is_far_ahead_counts_as_one_who_may_leave():
    """Of those who run one is short of text, and comes before those far ahead in the order; one has just begun, and is
    not worth waiting for."""
    ahead = [running(f"ahead{i}", 9.0, length_tokens=200) for i in range(3)]
    others = [running("short", 1.0, rate_tok_s=9.0), running("fresh", 5.0, since_s=NOW_S - 0.1)]
    seekers = [waiting(f"w{i}") for i in range(5)]
    assert len(swaps_of(decide(*seekers, *ahead, *others, engine=busy_engine(5)))) == 3


def test_a_late_first_token_asks_less_of_its_victim():
    """`surplus_s` protects those who read while somebody has waited for a moment, not while it has waited for long."""
    victim = running("r", 1.5)
    assert swaps_of(decide(waiting("w"), victim)) == []
    late = waiting("w", arrival_s=993.0)
    assert swaps_of(decide(late, victim)) == [("r", "w")]
    assert swaps_of(decide(late, running("r", 0.3))) == []  # it must still outlast what it lends


def test_riders_need_a_group_that_goes_anyway():
    rows = [running("a", 9.5), running("b", 9.4)]
    assert swaps_of(decide(paused("p", 4.0), *rows)) == []
    assert len(swaps_of(decide(paused("p", 4.0), paused("due", 0.3), *rows))) == 2
    ahead = [running("a", 30.0), running("b", 29.0)]  # far ahead: only for who is in need
    assert swaps_of(decide(paused("p", 4.0), paused("due", 0.3), *ahead)) == [("b", "due")]
    assert len(swaps_of(decide(paused("p", 6.0), waiting("w"), *rows))) == 1  # not while first tokens wait

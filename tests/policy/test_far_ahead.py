"""Who makes room first, and who goes on to its end because it is far ahead of its reader."""

from policy_rows import NOW_S, decide, engine_with, paused, running, swaps_of, waiting

from tokenflow.policy.plan import Cause
from tokenflow.policy.states import Variant


def test_the_longest_runway_leaves_first_and_whoever_is_far_ahead_last():
    rows = [running("b", 4.0), running("c", 9.0), running("a", 3.0)]
    assert swaps_of(decide(waiting("w"), *rows)) == [("c", "w")]
    ahead = running("ahead", 9.5, length_tokens=100)  # 57 of 100 unread, more than a tenth: it goes on to its end
    assert swaps_of(decide(waiting("w"), ahead, *rows)) == [("c", "w")]
    assert swaps_of(decide(waiting("w"), ahead, *rows, max_unread_ratio=0.6)) == [("ahead", "w")]
    further = running("further", 12.0, length_tokens=100)
    assert swaps_of(decide(waiting("w"), further, ahead)) == [("ahead", "w")]  # the furthest ahead stays longest
    both = [running("ahead", 3.0, length_tokens=100), running("near", 1.0)]
    assert swaps_of(decide(waiting("w"), *both)) == [("ahead", "w")]  # it leaves where nobody else is safe


def test_who_is_far_ahead_does_not_hang_on_what_a_client_asks_for_at_most():
    """20 s of text are far ahead at a tenth, of whatever length: no more than 100 s of reading count."""
    near, ahead = running("near", 9.0, length_tokens=1e6), running("ahead", 20.0, length_tokens=1e6)
    assert swaps_of(decide(waiting("w"), near, ahead)) == [("near", "w")]
    assert swaps_of(decide(waiting("w"), near, ahead, max_unread_ratio=0.2)) == [("ahead", "w")]


def test_other_peoples_variants_know_nobody_far_ahead():
    rows = [running("near", 9.0), running("ahead", 20.0, length_tokens=100)]
    for variant in (Variant.PAPER, Variant.GUIDE):
        assert swaps_of(decide(waiting("w"), *rows, variant=variant)) == [("ahead", "w")]


def test_streams_far_ahead_are_left_alone_until_somebody_is_due():
    ahead = running("ahead", 9.0, length_tokens=200)  # 54 of 200 unread
    assert swaps_of(decide(paused("behind", 1.6, length_tokens=200), ahead)) == []
    made = decide(paused("behind", 0.6, length_tokens=200), ahead)
    assert swaps_of(made) == [("ahead", "behind")]
    assert made.pauses[0].cause is Cause.RESCUE


def test_past_the_bound_unsafe_readers_leave_after_safe_ones_that_are_far_ahead():
    late = waiting("late", arrival_s=NOW_S - 40.0, since_s=NOW_S - 40.0, context_tokens=150)
    near = running("near", 0.1, kv_device_tokens=200, context_tokens=200)
    ahead = running("ahead", 9.5, length_tokens=100, kv_device_tokens=100)
    made = decide(late, near, ahead, engine=engine_with(kv_free_tokens=16 + 80))
    assert swaps_of(made) == [("ahead", "late")]

"""Whose device copies make room: dropped, written, or given up."""

import pytest
from policy_rows import NOW_S, paused, running, view_of

from tokenflow.policy.releases import releases


def copy(rid, runway_s, unwritten, both, **values):
    """A paused stream with `unwritten` + `both` tokens on the device."""
    return paused(
        rid, runway_s, context_tokens=unwritten + both, kv_device_tokens=unwritten + both, kv_host_tokens=both,
        kv_both_tokens=both, **values,
    )  # fmt: skip


RICH, MIDDLE, POOR = copy("rich", 9.0, 30, 70), copy("middle", 5.0, 10, 0), copy("poor", 1.0, 50, 50)


def release(*rows, lacking=0.0, give_up=0.0, room=0.0, started=(), kept=()):
    view = view_of(*rows)
    found = releases(view, set(started), list(kept), lacking, give_up, room)
    assert all(view.rids[one.row] == one.rid for one in found)
    return [(one.rid, one.tokens, one.write_tokens) for one in found]


@pytest.mark.parametrize(
    ("lacking", "room", "expected"),
    [
        (1, 0, [("rich", 70, 0)]),
        (70, 100, [("rich", 70, 0)]),
        (71, 100, [("rich", 71, 1)]),
        (90, 100, [("rich", 90, 20)]),
        (100, 100, [("rich", 100, 30)]),
        (101, 100, [("rich", 100, 30), ("middle", 1, 1)]),
        (120, 100, [("rich", 100, 30), ("middle", 10, 10), ("poor", 50, 0)]),
        (165, 100, [("rich", 100, 30), ("middle", 10, 10), ("poor", 55, 5)]),
        (90, 5, [("rich", 75, 5), ("poor", 50, 0)]),
        (90, 35, [("rich", 90, 20)]),
        (500, 35, [("rich", 100, 30), ("middle", 5, 5), ("poor", 50, 0)]),
        (500, 0, [("rich", 70, 0), ("poor", 50, 0)]),
    ],
)
def test_the_longest_runway_first_dropped_or_written(lacking, room, expected):
    assert release(POOR, RICH, MIDDLE, lacking=lacking, room=room) == expected


@pytest.mark.parametrize(
    ("lacking", "give_up", "expected"),
    [
        (120, 5, [("rich", 70, 0), ("poor", 50, 0)]),
        (121, 5, [("rich", 100, 0), ("poor", 50, 0)]),
        (200, 5, [("rich", 100, 0), ("poor", 50, 0)]),
        (200, 30, [("rich", 100, 0), ("poor", 50, 0)]),
        (200, 35, [("rich", 100, 0), ("middle", 10, 0), ("poor", 50, 0)]),
        (200, 45, [("rich", 100, 0), ("middle", 10, 0), ("poor", 100, 0)]),
    ],
)
def test_only_so_much_is_given_up(lacking, give_up, expected):
    found = release(POOR, RICH, MIDDLE, lacking=lacking, give_up=give_up)
    assert sorted(found) == sorted(expected)


def test_what_was_written_is_not_given_up_again():
    assert release(RICH, lacking=500, give_up=500, room=10) == [("rich", 100, 10)]


def test_who_starts_keeps_its_copy():
    assert release(RICH, POOR, lacking=60, started=[0]) == [("poor", 50, 0)]


def test_a_stream_that_is_being_paused_counts_and_others_that_run_do_not():
    leaving = running("leaving", 3.0, kv_host_tokens=80, kv_both_tokens=80)
    assert release(leaving, running("stays", 9.0), lacking=60, kept=[0]) == [("leaving", 80, 0)]


def test_nothing_on_the_device_nothing_to_release():
    assert release(paused("p", 9.0), lacking=50, give_up=50, room=50) == []


def test_ties_go_by_arrival():
    rows = [copy("b", 2.0, 0, 10), copy("a", 2.0, 0, 10, arrival_s=NOW_S - 99.0)]
    assert release(*rows, lacking=15) == [("a", 10, 0), ("b", 10, 0)]
    assert release(*rows, lacking=10) == [("a", 10, 0)]

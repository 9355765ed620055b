"""Sorting and filtering of rows."""

import pytest
from document_samples import request_rows
from hypothesis import given
from hypothesis import strategies as st

from tfctl.views.requests import COLUMNS
from tokenflow_tui.order import Order, arranged

RIDS = [row.rid[-2:] for row in request_rows()]


def rids(order=None, wanted=""):
    return [row.rid[-2:] for row in arranged(request_rows(), order or Order(), wanted)]


def column(title):
    return next(index for index, column in enumerate(COLUMNS) if column.title == title)


def test_least_runway_first_and_nobody_who_has_none_before_that():
    assert rids() == ["a1", "c3", "b2", "d4"]
    assert rids(Order().reversed()) == ["b2", "a1", "c3", "d4"]


def test_every_column_sorts_both_ways_and_loses_nobody():
    for index in range(len(COLUMNS)):
        for order in (Order(index), Order(index).reversed()):
            assert sorted(rids(order)) == sorted(RIDS)
    assert rids(Order(column("TOKENS"), is_descending=True))[0] == "d4"


def test_asked_twice_for_a_column_the_order_turns_round():
    order = Order().by(column("AGE"))
    assert (order.column, order.is_descending) == (column("AGE"), False)
    assert order.by(column("AGE")).is_descending


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("B2", ["b2"]),
        ("running", ["a1", "b2", "d4"]),
        ("running reading", ["a1", "b2"]),
        ("!running", ["c3"]),
        ("running !batch", ["a1", "b2"]),
        ("running_starving", ["a1"]),
        ("nothing like it", []),
        ("  ", ["a1", "c3", "b2", "d4"]),
        ("!", []),
    ],
)
def test_filter(wanted, expected):
    assert rids(wanted=wanted) == expected


@given(st.text(), st.integers(-40, 40))
def test_any_filter_and_any_column_give_a_part_of_the_rows(wanted, by):
    assert set(rids(Order().moved(by), wanted)) <= set(RIDS)

"""Rows → strips, without an app."""

import re
from dataclasses import replace

from document_samples import request_rows

from tfctl.output import Look
from tfctl.views.requests import COLUMNS
from tokenflow_tui.strips import build_strips, with_cursor


def texts(table):
    return ["".join(segment.text for segment in strip) for strip in [table.title, *table.rows]]


def test_all_columns_where_there_is_room():
    table = build_strips(request_rows(), Look(width=140))
    title, first, *_ = texts(table)
    assert re.split(r" {2,}", title.strip()) == [column.title for column in COLUMNS]
    assert first.startswith("tf-00000000000000a1  ▶ running")
    assert len(table.rows) == len(request_rows())
    assert {strip.cell_length for strip in [table.title, *table.rows]} == {table.width}


def test_columns_are_dropped_to_fit_and_the_runway_stays():
    for width in (100, 80, 60):
        table = build_strips(request_rows(), Look(width=width))
        assert table.width <= width
        assert "RUNWAY" in texts(table)[0]
        assert "3.3 s ██▋" in texts(table)[2]


def test_ascii():
    table = build_strips(request_rows(), Look(width=140, unicode=False))
    assert all(text.isascii() for text in texts(table))


def test_state_is_never_colour_alone():
    plain = texts(build_strips(request_rows(), Look(width=140)))
    assert all(row.state in text for row, text in zip(request_rows(), plain[1:], strict=True))


def test_no_rows_is_a_title_alone():
    assert build_strips([], Look(width=80)).rows == []


def test_the_cursor_covers_the_whole_width():
    table = build_strips(request_rows(), replace(Look(), width=80))
    strip = with_cursor(table.rows[0], 100)
    assert strip.cell_length == 100
    assert all(segment.style.reverse for segment in strip if segment.text)

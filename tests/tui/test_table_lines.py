"""Rows → strips, without an app."""

import re

from document_samples import request_rows

from tfctl.output import Look
from tfctl.views.requests import COLUMNS
from tokenflow_tui.order import Order
from tokenflow_tui.table_lines import TableLines


def table(width, *, unicode=True, order=None, rows=None):
    lines = TableLines(Look(width=width, unicode=unicode))
    lines.set_rows(request_rows() if rows is None else rows, order or Order())
    lines.ready(0, len(lines))
    return lines


def texts(lines):
    return [strip.text for strip in (lines.title(), *(lines.line(index) for index in range(len(lines))))]


def test_all_columns_where_there_is_room():
    lines = table(220)
    title, first, *_ = texts(lines)
    assert re.split(r" {2,}", title.strip().replace("▲", "")) == [column.title for column in COLUMNS]
    assert first.startswith("tf-00000000000000a1  ▶ running")
    assert {len(text) for text in texts(lines)} == {lines.width}


def test_columns_are_dropped_to_fit_and_the_runway_stays():
    for width in (120, 100, 80, 60):
        lines = table(width)
        assert lines.width <= width
        assert "RUNWAY" in texts(lines)[0]
        assert "3.3 s ██▋" in texts(lines)[2]


def test_ids_are_cut_at_the_front_where_room_is_short():
    assert texts(table(80))[1].startswith("…000000a1 ")
    assert texts(table(80, unicode=False))[1].startswith("~000000a1 ")


def test_ascii():
    assert all(text.isascii() for text in texts(table(220, unicode=False)))


def test_state_is_never_colour_alone():
    plain = texts(table(140))
    assert all(row.state in text for row, text in zip(request_rows(), plain[1:], strict=True))


def test_the_sorted_column_has_an_arrow():
    tokens = next(index for index, column in enumerate(COLUMNS) if column.title == "TOKENS")
    assert "TOKENS▼" in texts(table(220, order=Order(tokens, is_descending=True)))[0]
    assert "TOKENS^" in texts(table(220, unicode=False, order=Order(tokens)))[0]


def test_a_title_is_found_by_where_it_stands():
    lines = table(220)
    title = lines.title().text
    for index, column in enumerate(COLUMNS):
        assert lines.column_at(title.index(column.title)) == index
    assert lines.column_at(lines.width + 10) is None


def test_no_column_gets_narrower_while_rows_change():
    rows = request_rows()
    lines = table(220, rows=rows)
    wide = lines.width
    lines.set_rows(rows[2:3], Order())
    lines.ready(0, 1)
    assert lines.width == wide


def test_no_rows_is_a_title_alone():
    assert len(texts(table(80, rows=[]))) == 1


def test_the_cursor_covers_the_whole_width():
    strip = table(80).line(0, 100, is_cursor=True)
    assert strip.cell_length == 100
    assert all(segment.style.reverse for segment in strip if segment.text)


def test_a_line_is_cut_and_filled_to_the_width():
    lines = table(80)
    assert (lines.line(0, 100).cell_length, lines.line(0, 20).cell_length) == (100, 20)
    assert lines.title(30).cell_length == 30

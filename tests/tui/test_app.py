"""The live view as a user drives it, headless, against a daemon of the tests: table, cursor, panels, looks."""

import pytest
from document_samples import request_rows
from view_driver import BY_RUNWAY, FIRST, column, filled, lines, shown, table_of, text_of, until

from tokenflow_tui.app import LiveView
from tokenflow_tui.panel import Panel
from tokenflow_tui.table import RequestTable


async def test_shows_the_engine_and_the_rows(app):
    async with app.run_test(size=(140, 36)):
        await filled(app)
        header = text_of(app)
        assert "serving" in header
        assert "mode observe" in header
        assert "demand 48.5 of 62 tok/s" in header
        assert lines(app)[0].split()[0] == "RID"
        assert shown(app) == BY_RUNWAY
        assert "TTFT p99" in text_of(app, "trends")
        assert "1.2 s" in text_of(app, "trends")
        assert "to host" in text_of(app, "transfers")


async def test_the_cursor_stays_on_its_request_when_rows_move(app, daemon):
    async with app.run_test(size=(120, 20)) as pilot:
        table = await filled(app)
        await pilot.press("down", "j")
        assert table.cursor_rid == daemon.rows[1].rid  # b2
        daemon.rows[1].runway_s = -1.0
        await until(lambda: table.cursor_index == 0)
        assert table.cursor_rid == daemon.rows[1].rid
        await pilot.press("r")
        assert table.cursor_index == 2
        assert table.cursor_rid == daemon.rows[1].rid


async def test_when_its_request_has_gone_the_cursor_stays_in_place(app, daemon):
    async with app.run_test(size=(120, 20)) as pilot:
        table = await filled(app)
        await pilot.press("end")
        assert table.cursor_index == len(daemon.rows) - 1
        daemon.rows = daemon.rows[:-1]
        await until(lambda: table.cursor_rid == daemon.rows[1].rid)
        daemon.rows = []
        await until(lambda: table.cursor_rid is None)
        await pilot.press("up", "down", "enter", "y", "p", "x", "escape")
        daemon.rows = request_rows()
        await until(lambda: table.cursor_index == 0)


async def test_space_freezes_the_view_while_reading_goes_on(app, daemon):
    async with app.run_test(size=(120, 20)) as pilot:
        await filled(app)
        await pilot.press("space")
        assert "FROZEN" in text_of(app)
        count = len(app.scene.history)
        daemon.rows = daemon.rows[1:]
        await until(lambda: len(app.scene.history) >= count + 2)
        await pilot.pause()
        assert shown(app) == BY_RUNWAY
        await pilot.press("space")
        assert "FROZEN" not in text_of(app)
        assert shown(app) == BY_RUNWAY[1:]


async def test_time_travel(app, daemon):
    async with app.run_test(size=(120, 24)) as pilot:
        await filled(app)
        daemon.rows = daemon.rows[1:]
        await until(lambda: shown(app) == BY_RUNWAY[1:])
        await pilot.press("left_curly_bracket")
        assert shown(app) == BY_RUNWAY
        assert "PAST" in text_of(app)
        assert text_of(app, "bar").startswith("past ")
        count = len(app.scene.history)
        await until(lambda: len(app.scene.history) > count)
        assert shown(app) == BY_RUNWAY
        await pilot.press("p")  # what is past is not acted on
        await pilot.press("escape")
        assert shown(app) == BY_RUNWAY[1:]
        assert "PAST" not in text_of(app)
        assert not [path for method, path, _ in daemon.seen if method == "POST"]


async def test_the_filter_takes_every_letter_and_can_be_left_in_both_ways(app):
    async with app.run_test(size=(120, 20)) as pilot:
        await filled(app)
        await pilot.press("slash", *"q?b2 r", "space", "left_square_bracket")
        assert app.is_running
        assert app.query_one("#filter").value == "q?b2 r ["
        await pilot.press("escape")
        await until(lambda: shown(app) == BY_RUNWAY)
        await pilot.press("slash", "space", "enter")
        assert shown(app) == BY_RUNWAY
        assert text_of(app, "bar") == ""  # blanks are no filter
        await pilot.press("slash", "backspace", *"nosuch", "enter")
        await until(lambda: app.query_one(RequestTable).render_line(1).text.rstrip() == "no request matches")
        await pilot.press("escape", "slash", *"waiting", "enter")
        await until(lambda: shown(app) == ["c3"])
        assert "filter /waiting: 1 of 4" in text_of(app, "bar")
        await pilot.press("escape")
        await until(lambda: shown(app) == BY_RUNWAY)
        assert text_of(app, "bar") == ""


async def test_sorting_by_keys_and_by_mouse(app):
    async with app.run_test(size=(220, 20)) as pilot:
        table = await filled(app)
        await pilot.press("left")
        assert table.order.column == column("RUNWAY") - 1
        at = table.lines.title().text.index("TOKENS")
        await pilot.click(RequestTable, offset=(at, 0))
        assert (table.order.column, table.order.is_descending) == (column("TOKENS"), False)
        await pilot.click(RequestTable, offset=(at, 0))
        assert shown(app) == ["d4", "b2", "a1", "c3"]
        await pilot.click(RequestTable, offset=(3, 2))
        assert table.cursor_index == 1


async def test_the_detail_lies_beside_the_table_or_in_its_place(app, daemon):
    async with app.run_test(size=(140, 36)) as pilot:
        await filled(app)
        await pilot.press("enter")
        await until(lambda: "timeline" in text_of(app, "detail"))
        assert FIRST in text_of(app, "detail")
        assert table_of(app).display
        await pilot.press("down")
        await until(lambda: daemon.rows[2].rid in text_of(app, "detail"))
        await pilot.press("escape")
        assert not app.screen.has_class("detail")
        await pilot.resize_terminal(80, 24)
        await pilot.press("enter")
        await until(lambda: not table_of(app).display)
        await pilot.press("enter")
        await until(lambda: table_of(app).display)


async def test_the_detail_has_the_policys_terms(app):
    async with app.run_test(size=(140, 36)) as pilot:
        await filled(app)
        await pilot.press("enter")
        await until(lambda: "the policy's terms" in text_of(app, "detail"))
        assert "unread_tokens" in text_of(app, "detail")


async def test_ascii_is_ascii(daemon):
    app = LiveView(daemon.path, use_ascii=True)
    async with app.run_test(size=(140, 36)) as pilot:
        await filled(app)
        await pilot.press("enter", "left_curly_bracket")
        await until(lambda: "timeline" in text_of(app, "detail"))
        assert all(line.isascii() for line in lines(app))
        for name in ("header", "trends", "transfers", "detail", "bar"):
            assert text_of(app, name).isascii(), name


@pytest.mark.parametrize("theme", ["colour-blind", "high-contrast", "textual-light"])
async def test_themes(daemon, theme):
    app = LiveView(daemon.path, theme=theme)
    async with app.run_test(size=(120, 24)):
        await filled(app)
        panel = app.query_one("#header", Panel)
        assert panel.render_line(0)._segments[0].style.color is not None
        app.theme = "textual-dark"
        await until(lambda: panel.styles_in_use["good"].color.name == app.theme_variables["text-success"].lower())


async def test_panels_go_and_come(app):
    async with app.run_test(size=(120, 36)) as pilot:
        await filled(app)
        await pilot.press("1")
        assert not app.query_one("#trends").display
        await pilot.press("1")
        await until(lambda: "TTFT" in text_of(app, "trends"))


async def test_those_that_have_ended_are_shown_when_asked_for(app, daemon):
    async with app.run_test(size=(120, 36)) as pilot:
        await filled(app)
        await pilot.press("a")
        await until(lambda: any("all=1" in path for _, path, _ in daemon.seen))


async def test_a_long_table_scrolls_with_the_cursor_and_keeps_its_title(app, daemon):
    first = request_rows()[1]
    daemon.rows = [type(first)(**{**_fields(first), "rid": f"tf-{index:016x}"}) for index in range(200)]
    async with app.run_test(size=(80, 12)) as pilot:
        await filled(app)
        await pilot.press("end")
        await until(lambda: shown(app)[-1] == "c7")
        assert lines(app)[0].startswith("RID")
        await pilot.press("home")
        await until(lambda: shown(app)[0] == "00")
        await pilot.press("pagedown")
        await pilot.pause()
        assert 2 < table_of(app).cursor_index < 12


async def test_q_quits(app):
    async with app.run_test() as pilot:
        await pilot.press("q")
    assert app.return_code == 0


def _fields(row):
    return {name: getattr(row, name) for name in row.__struct_fields__}


async def test_what_is_to_be_said_stands_above_all(daemon):
    app = LiveView(daemon.path, say="Watch RUNWAY.")
    async with app.run_test(size=(120, 30)):
        await filled(app)
        assert text_of(app).splitlines()[0] == "Watch RUNWAY."

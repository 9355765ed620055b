"""The live view as a user drives it, headless, against a daemon of the tests."""

import asyncio

import pytest
from document_samples import request_rows
from fake_daemon import FakeDaemon
from textual.widgets import Static

from tokenflow.wire import EngineState
from tokenflow_tui.app import LiveView
from tokenflow_tui.table import RequestTable


async def until(condition, limit_s=20.0):
    """Polls: the view reads the daemon in a thread of its own."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + limit_s
    while not condition():
        assert loop.time() < end_s, "it did not come to pass"
        await asyncio.sleep(0.02)


def header(app) -> str:
    return str(app.query_one("#header", Static).content)


def lines(app) -> list[str]:
    table = app.query_one(RequestTable)
    return ["".join(segment.text for segment in table.render_line(y)) for y in range(table.size.height)]


@pytest.fixture
def app(daemon, folder):
    return LiveView(daemon.path, explicit=daemon.path)


async def test_shows_the_engine_and_the_rows(app, daemon):
    async with app.run_test(size=(120, 20)):
        await until(lambda: "serving" in header(app))
        assert "mode observe" in header(app)
        assert "demand 48.5 of 62 tok/s" in header(app)
        shown = lines(app)
        assert shown[0].split()[0] == "RID"
        assert [line.split()[0] for line in shown[1:5]] == [row.rid for row in daemon.rows]


async def test_the_cursor_stays_on_its_request_when_rows_move(app, daemon):
    async with app.run_test(size=(120, 20)) as pilot:
        table = app.query_one(RequestTable)
        await until(lambda: table.cursor_index == 0)
        await pilot.press("down", "j")
        rid = table.cursor_rid
        assert rid == daemon.rows[2].rid
        daemon.rows = list(reversed(daemon.rows))
        await until(lambda: table.cursor_index == 1)
        assert table.cursor_rid == rid


async def test_when_its_request_has_gone_the_cursor_stays_in_place(app, daemon):
    async with app.run_test(size=(120, 20)) as pilot:
        table = app.query_one(RequestTable)
        await until(lambda: table.cursor_index == 0)
        await pilot.press("end")
        assert table.cursor_index == len(daemon.rows) - 1
        daemon.rows = daemon.rows[:-1]
        await until(lambda: table.cursor_rid == daemon.rows[-1].rid)
        daemon.rows = []
        await until(lambda: table.cursor_rid is None)
        await pilot.press("up", "down")
        daemon.rows = request_rows()
        await until(lambda: table.cursor_index == 0)


async def test_space_freezes_the_view_while_reading_goes_on(app, daemon):
    async with app.run_test(size=(120, 20)) as pilot:
        table = app.query_one(RequestTable)
        await until(lambda: table.cursor_index == 0)
        await pilot.press("space")
        assert "FROZEN" in header(app)
        seen_count = len(daemon.seen)
        daemon.rows = daemon.rows[1:]
        await until(lambda: len(daemon.seen) >= seen_count + 4)
        await pilot.pause()
        assert table.cursor_rid == request_rows()[0].rid
        assert "a1" in lines(app)[1]
        await pilot.press("space")
        assert "FROZEN" not in header(app)
        assert "b2" in lines(app)[1]


async def test_a_daemon_that_goes_is_told_and_found_again(app, daemon):
    async with app.run_test(size=(120, 20)):
        await until(lambda: "serving" in header(app))
        daemon.close()
        await until(lambda: "daemon gone, trying again" in header(app))
        assert "a1" in lines(app)[1]  # the last rows stay
        with FakeDaemon(daemon.path, EngineState.BUSY):
            await until(lambda: "busy" in header(app))
            assert "trying again" not in header(app)


async def test_nonsense_is_told_and_survived(folder):
    path = folder / "control.sock"
    with FakeDaemon(path, garbage=b"what\r\n\r\n"):
        app = LiveView(path)
        async with app.run_test(size=(120, 20)):
            await until(lambda: "broken" in header(app))


async def test_help_lists_every_key_and_closes(app):
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        text = str(app.screen.query_one(Static).content)
        for word in ("quit", "help", "freeze", "next request", "last request"):
            assert word in text
        await pilot.press("escape")
        await pilot.pause()
        assert app.query_one(RequestTable)


async def test_a_long_table_scrolls_with_the_cursor_and_keeps_its_title(app, daemon):
    first = request_rows()[1]
    daemon.rows = [type(first)(**{**_fields(first), "rid": f"tf-{index:016x}"}) for index in range(200)]
    async with app.run_test(size=(80, 12)) as pilot:
        table = app.query_one(RequestTable)
        await until(lambda: table.cursor_index == 0)
        await pilot.press("end")
        await pilot.pause()
        shown = lines(app)
        assert shown[0].startswith("RID")
        assert any(line.startswith(daemon.rows[199].rid) for line in shown)
        await pilot.press("home")
        await pilot.pause()
        assert lines(app)[1].startswith(daemon.rows[0].rid)


async def test_q_quits(app):
    async with app.run_test() as pilot:
        await pilot.press("q")
    assert app.return_code == 0


def _fields(row):
    return {name: getattr(row, name) for name in row.__struct_fields__}

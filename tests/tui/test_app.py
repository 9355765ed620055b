"""The live view as a user drives it, headless, against a daemon of the tests."""

import asyncio
import threading

import pytest
from document_samples import request_rows
from fake_daemon import FakeDaemon
from textual.command import CommandList
from textual.widgets import Static

from tfctl.views.requests import COLUMNS
from tokenflow.policy.states import Reason, RequestState
from tokenflow.wire import EngineState
from tokenflow_tui.app import LiveView
from tokenflow_tui.panel import Panel
from tokenflow_tui.recording import Recorder, read
from tokenflow_tui.table import RequestTable

BY_RUNWAY = ["a1", "c3", "b2", "d4"]
FIRST = "tf-00000000000000a1"


async def until(condition, limit_s=20.0):
    """Polls: the view reads the daemon in a thread of its own."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + limit_s
    while not condition():
        assert loop.time() < end_s, "it did not come to pass"
        await asyncio.sleep(0.02)


def text_of(app, name="header") -> str:
    return app.query_one(f"#{name}", Panel).text


def table_of(app) -> RequestTable:
    return app.query_one(RequestTable)


def lines(app) -> list[str]:
    table = table_of(app)
    return [table.render_line(y).text for y in range(table.size.height)]


def shown(app) -> list[str]:
    """The ends of the ids, from the top."""
    return [line.split()[0][-2:] for line in lines(app)[1:] if line.strip()]


async def filled(app) -> RequestTable:
    await until(lambda: table_of(app).cursor_index is not None)
    return table_of(app)


def column(title) -> int:
    return next(index for index, column in enumerate(COLUMNS) if column.title == title)


@pytest.fixture
def app(daemon, folder):
    return LiveView(daemon.path, explicit=daemon.path)


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


async def test_a_daemon_that_goes_is_told_and_found_again(app, daemon):
    async with app.run_test(size=(120, 20)):
        await filled(app)
        daemon.close()
        await until(lambda: "daemon gone, trying again" in text_of(app))
        await until(lambda: "what is shown is 1 s old" in text_of(app))
        assert shown(app) == BY_RUNWAY  # the last rows stay
        with FakeDaemon(daemon.path, EngineState.BUSY):
            await until(lambda: "busy" in text_of(app))
            assert "trying again" not in text_of(app)


async def test_a_restart_of_the_daemon_or_of_the_engine_is_told(app, daemon):
    async with app.run_test(size=(120, 24)):
        await filled(app)
        assert "anew" not in text_of(app)
        answer = daemon.status

        def another(part):
            document = answer()
            getattr(document, part).pid += 7
            return document

        daemon.status = lambda: another("engine")
        await until(lambda: "the engine was started anew" in text_of(app))
        daemon.status = lambda: another("daemon")
        await until(lambda: "the daemon was restarted" in text_of(app))


async def test_a_daemon_that_does_not_answer_is_told_and_waited_for(app, daemon):
    async with app.run_test(size=(120, 20)):
        await filled(app)
        app._reading.feed._client.timeout_s = 0.2
        gate = threading.Event()
        answer, daemon.status = daemon.status, lambda: (gate.wait(20), answer())[1]
        await until(lambda: "has not answered within" in text_of(app))
        assert shown(app) == BY_RUNWAY
        daemon.status = answer
        gate.set()
        await until(lambda: "has not answered" not in text_of(app))


async def test_an_older_daemon_is_named_and_what_it_lacks_is_left_out(app, daemon):
    daemon.version = "0.0.1"
    daemon.lacks = {"/v1/events", "/explain"}
    async with app.run_test(size=(140, 36)) as pilot:
        await filled(app)
        assert "the daemon is 0.0.1" in text_of(app)
        await pilot.press("enter")
        await until(lambda: FIRST in text_of(app, "detail"))
        count = len(app.scene.history)
        await until(lambda: len(app.scene.history) > count + 1)
        assert "the policy's terms" not in text_of(app, "detail")
        assert "404" not in text_of(app)


async def test_nonsense_is_told_and_survived(folder):
    path = folder / "control.sock"
    with FakeDaemon(path, garbage=b"what\r\n\r\n"):
        app = LiveView(path)
        async with app.run_test(size=(120, 20)):
            await until(lambda: "broken" in text_of(app))


async def test_help_lists_every_key_and_closes(app):
    async with app.run_test(size=(120, 50)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        text = str(app.screen.query_one(Static).content)
        for word in (
            "quit",
            "help",
            "stands still",
            "next request",
            "last request",
            "pause the request",
            "‖ preempted",
        ):
            assert word in text
        await pilot.press("escape")
        await pilot.pause()
        assert table_of(app)


async def test_pausing_and_resuming_a_request(app, daemon):
    async with app.run_test(size=(120, 24)) as pilot:
        await filled(app)
        await pilot.press("p")
        await until(lambda: ("POST", f"/v1/requests/{FIRST}/pause", b"") in daemon.seen)
        daemon.rows[0].state, daemon.rows[0].reason = RequestState.PREEMPTED, Reason.PREEMPTED_OPERATOR
        await until(lambda: table_of(app).cursor_row.reason is Reason.PREEMPTED_OPERATOR)
        await pilot.press("p")
        await until(lambda: ("POST", f"/v1/requests/{FIRST}/resume", b"") in daemon.seen)


async def test_a_refusal_is_told(app, daemon):
    async with app.run_test(size=(120, 24)) as pilot:
        await filled(app)
        await pilot.press("down", "p")
        await until(lambda: any("there is no such request" in note.message for note in app._notifications))


async def test_aborting_asks_first(app, daemon):
    async with app.run_test(size=(120, 24)) as pilot:
        await filled(app)
        await pilot.press("x", "n")
        await pilot.press("x", "enter")
        await pilot.pause()
        assert not [path for method, path, _ in daemon.seen if method == "POST"]
        await pilot.press("x", "y")
        await until(lambda: ("POST", f"/v1/requests/{FIRST}/abort", b"") in daemon.seen)


async def test_readonly_has_no_key_that_changes_anything(daemon):
    app = LiveView(daemon.path, is_readonly=True)
    async with app.run_test(size=(120, 50)) as pilot:
        await filled(app)
        await pilot.press("p", "x", "y")
        await pilot.press("question_mark")
        await pilot.pause()
        text = str(app.screen.query_one(Static).content)
        assert "pause the request" not in text
        assert "end the request" not in text
        assert {method for method, _, _ in daemon.seen} == {"GET"}
        titles = [command.title for command in app.get_system_commands(app.screen_stack[0])]
        assert "End the request" not in titles
        assert "Quit" in titles


async def test_the_palette_finds_every_theme_by_its_name(app):
    async with app.run_test(size=(100, 30)) as pilot:
        await filled(app)
        await pilot.press("ctrl+p", *"colour-blind")
        await until(lambda: len(app.screen.query_one(CommandList).options) == 1)
        await pilot.press("enter")
        await until(lambda: app.theme == "colour-blind")


async def test_y_copies_the_whole_id(app):
    async with app.run_test(size=(80, 24)) as pilot:
        await filled(app)
        await pilot.press("y")
        assert app.clipboard == FIRST


async def test_a_screenshot_is_an_svg_in_the_working_folder(app, folder, monkeypatch):
    monkeypatch.chdir(folder)
    async with app.run_test(size=(120, 24)) as pilot:
        await filled(app)
        await pilot.press("S")
        (path,) = folder.glob("*.svg")
        picture = path.read_text()
        assert "000000a1" in picture
        assert "url(http" not in picture


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


async def test_a_recording_is_made_and_replayed(daemon, folder):
    path = folder / "a.tfrec"
    app = LiveView(daemon.path, recorder=Recorder(path))
    async with app.run_test(size=(120, 36)) as pilot:
        await filled(app)
        assert f"recording to {path}" in text_of(app)
        daemon.rows = daemon.rows[1:]
        await until(lambda: shown(app) == BY_RUNWAY[1:])
        await until(lambda: len(app.scene.history) >= 5)
        await pilot.press("q")
    daemon.close()
    recording = read(path)
    assert len(recording.moments) >= 5
    app = LiveView(None, recording=recording)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(lambda: shown(app) == BY_RUNWAY)
        assert text_of(app, "bar").startswith("replay ")
        await pilot.press("space")
        assert text_of(app, "bar").startswith("replay paused")
        await pilot.press("right_curly_bracket")
        assert shown(app) == BY_RUNWAY[1:]
        await pilot.press("left_curly_bracket")
        assert shown(app) == BY_RUNWAY
        await pilot.press("p", "x", "a", "escape", "enter")
        assert app.scene.clock.at_s == recording.moments[0].at_s
        await until(lambda: "timeline" in text_of(app, "detail"))
        await pilot.press("plus", "space")
        assert "x2" in text_of(app, "bar")
        await until(lambda: shown(app) == BY_RUNWAY[1:])
        titles = {command.title for command in app.get_system_commands(app.screen_stack[0])}
        assert "Play faster" in titles
        assert not titles & {"Also those that have ended", "End the request"}  # a replay has what was seen


async def test_what_is_to_be_said_stands_above_all(daemon):
    app = LiveView(daemon.path, say="Watch RUNWAY.")
    async with app.run_test(size=(120, 30)):
        await filled(app)
        assert text_of(app).splitlines()[0] == "Watch RUNWAY."

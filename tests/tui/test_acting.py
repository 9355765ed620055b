"""What the keys of the live view do to requests, and what else they bring: help, palette, copies, pictures."""

from textual.command import CommandList
from textual.widgets import Static
from view_driver import FIRST, filled, table_of, until

from tokenflow.policy.states import Reason, RequestState
from tokenflow_tui.app import LiveView


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

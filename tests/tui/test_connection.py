"""The live view and a daemon that goes, comes back, is silent or older, and a recording instead of one."""

import threading

from fake_daemon import FakeDaemon
from view_driver import BY_RUNWAY, FIRST, filled, shown, text_of, until

from tokenflow.wire import EngineState
from tokenflow_tui.app import LiveView
from tokenflow_tui.recording import Recorder, read


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

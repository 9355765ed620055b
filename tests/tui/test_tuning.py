"""The tuning panel: its draft without an app, and the panel as a user drives it."""

import json

import msgspec
import pytest
from document_samples import tunables_document
from hypothesis import given
from hypothesis import strategies as st
from view_driver import until

from tfctl.output import Look
from tokenflow.policy.tunables import Tunables, check
from tokenflow.tuning import Origin, TuneRequest
from tokenflow.wire import EngineState
from tokenflow_tui.app import LiveView
from tokenflow_tui.draft import Draft
from tokenflow_tui.panel import Panel
from tokenflow_tui.strips import line_strip
from tokenflow_tui.table import RequestTable
from tokenflow_tui.tuning import TuningScreen
from tokenflow_tui.way_back import way_back


def draft(key="safety_factor"):
    return Draft(tunables_document(Tunables()).tunables, key)


def test_a_nudge_is_a_tenth_of_the_order_of_magnitude():
    made = draft()
    made.nudge(1)
    assert made.changes == {"safety_factor": 1.6}
    made.nudge(-1)
    assert made.changes == {}  # back at what is in force
    made.nudge(-100)
    assert made.changes == {"safety_factor": 1.0}
    made.drop()
    assert made.changes == {}


def test_choices_go_round():
    made = draft("write_through")
    made.nudge(1)
    assert made.changes == {"write_through": False}
    made.nudge(1)
    assert made.changes == {}
    made = draft("variant")
    made.nudge(-1)
    assert made.changes == {"variant": "fcfs"}


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-30, 30)), max_size=30))
def test_whatever_is_nudged_is_accepted_by_the_policy(steps):
    made = draft()
    for by, nudge in steps:
        made.move(by)
        if made.row.key not in ("overload_enter_ratio", "overload_exit_ratio"):  # one must stay below the other
            made.nudge(nudge)
    _, problems = check(made.changes, Tunables())
    assert problems == []
    for row in made.rows:
        made.cursor = made.rows.index(row)
        assert all(line_strip(line).cell_length <= 90 for line in made.slider(80, Look()))


def test_lines_keep_the_cursor_in_sight():
    made = draft()
    made.move(100)
    text = [line_strip(line).text for line in made.lines(90, 8, Look())]
    assert len(text) == 8
    assert any(line.startswith("▶") for line in text)
    assert text[0].startswith(f"KEY {len(made.rows) - 6} to {len(made.rows)} of {len(made.rows)} ")
    assert all(line.isascii() for line in (line_strip(line).text for line in made.lines(90, 8, Look(unicode=False))))


@pytest.fixture
def app(daemon):
    return LiveView(daemon.path, explicit=daemon.path)


def panel(app, name) -> str:
    return app.screen.query_one(f"#{name}", Panel).text


async def opened(app, pilot):
    await until(lambda: app.query_one(RequestTable).cursor_index is not None and app.scene.tunables is not None)
    await until(lambda: len(app.scene.history) > 2)
    await pilot.press("t")
    await until(lambda: isinstance(app.screen, TuningScreen))
    await until(lambda: "over the last" in panel(app, "effect"))


async def test_a_value_is_tried_applied_and_undone(app, daemon):
    async with app.run_test(size=(100, 40)) as pilot:
        await opened(app, pilot)
        assert "safety_factor" in panel(app, "tunables")
        await pilot.press("right", "right")
        assert "→ 1.7" in panel(app, "tunables")
        await until(lambda: "with safety_factor=1.7" in panel(app, "effect"))
        assert "tfctl --socket" in panel(app, "effect")
        assert not [method for method, _, _ in daemon.seen if method == "PATCH"]
        await pilot.press("enter")
        await until(lambda: any(method == "PATCH" for method, _, _ in daemon.seen))
        body = [body for method, _, body in daemon.seen if method == "PATCH"][-1]
        assert b'"safety_factor":1.7' in body
        assert b'"persist":false' in body
        await until(lambda: "→" not in panel(app, "tunables"))
        await pilot.press("u")
        await until(lambda: sum(method == "PATCH" for method, _, _ in daemon.seen) == 2)
        assert patches(daemon)[-1] == TuneRequest(reset=["safety_factor"])  # 1.5 was the default and is it again
        await pilot.press("R")
        await until(lambda: sum(method == "PATCH" for method, _, _ in daemon.seen) == 3)
        await pilot.press("escape")
        await until(lambda: not isinstance(app.screen, TuningScreen))


def patches(daemon):
    return [TuneRequest(**json.loads(body)) for method, _, body in daemon.seen if method == "PATCH"]


async def test_persisting_and_its_undoing_reach_the_file_too(app, daemon):
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(app, pilot)
        await pilot.press("right", "w")
        await until(lambda: any("persisted:" in note.message for note in app._notifications))
        (persisted,) = patches(daemon)
        assert (persisted.changes, persisted.persist) == ({"safety_factor": 1.6}, True)
        await pilot.press("u")
        await until(lambda: len(patches(daemon)) == 2)
        assert patches(daemon)[-1] == TuneRequest(reset=["safety_factor"])


def row_of(origin, value, persisted):
    (row,) = (row for row in draft().rows if row.key == "safety_factor")
    return msgspec.structs.replace(row, origin=origin, value=value, persisted=persisted)


KEY = "safety_factor"


@pytest.mark.parametrize(
    ("row", "is_file_changed", "steps"),
    [
        (row_of(Origin.PROFILE, 1.5, None), False, [TuneRequest(reset=[KEY])]),
        (row_of(Origin.TUNED, 2.0, None), False, [TuneRequest(changes={KEY: 2.0})]),
        (row_of(Origin.PERSISTED, 3.0, 3.0), False, [TuneRequest(changes={KEY: 3.0})]),
        (row_of(Origin.DEFAULT, 1.5, None), True, [TuneRequest(reset=[KEY])]),
        (row_of(Origin.TUNED, 2.0, None), True, [TuneRequest(reset=[KEY]), TuneRequest(changes={KEY: 2.0})]),
        (row_of(Origin.PERSISTED, 3.0, 3.0), True, [TuneRequest(changes={KEY: 3.0}, persist=True)]),
        (
            row_of(Origin.TUNED, 2.0, 3.0),
            True,
            [TuneRequest(changes={KEY: 3.0}, persist=True), TuneRequest(changes={KEY: 2.0})],
        ),
        (row_of(None, None, None), True, [TuneRequest(reset=[KEY])]),  # no engine: the file alone
    ],
)
def test_the_way_back(row, is_file_changed, steps):
    assert way_back([row], is_file_changed=is_file_changed) == steps


async def test_a_refusal_is_told_and_the_draft_stays(app, daemon):
    async with app.run_test(size=(100, 40)) as pilot:
        await opened(app, pilot)
        daemon.state = EngineState.STOPPED
        await pilot.press("right", "enter")
        await until(lambda: any("no engine" in note.message for note in app._notifications))
        assert "→ 1.6" in panel(app, "tunables")


async def test_readonly_compares_and_applies_nothing(daemon):
    app = LiveView(daemon.path, is_readonly=True)
    async with app.run_test(size=(100, 40)) as pilot:
        await opened(app, pilot)
        await pilot.press("right", "enter", "w", "u", "R")
        await until(lambda: "with safety_factor=1.6" in panel(app, "effect"))
        assert {method for method, _, _ in daemon.seen} == {"GET"}


async def test_without_tunables_it_says_so(app, daemon):
    daemon.lacks = {"/v1/tunables"}
    async with app.run_test(size=(100, 40)) as pilot:
        await until(lambda: app.query_one(RequestTable).cursor_index is not None)
        await pilot.press("t")
        await until(lambda: any("no tunables are known" in note.message for note in app._notifications))

"""Driving the live view in tests: waiting for what it shows, and reading it off."""

import asyncio

from tfctl.views.requests import COLUMNS
from tokenflow_tui.panel import Panel
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

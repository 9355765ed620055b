"""The pages about daemon and API name everything that exists."""

import re
from pathlib import Path

import pytest

from tokenflow import errors
from tokenflow.wire import AlarmKind
from tokenflowd.metrics.alerts import ALERTS
from tokenflowd.routes import engine, events, hold, logs, metrics, mode, requests, state, tunables
from tokenflowd.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
SUBJECTS = (state, engine, logs, mode, events, hold, requests, tunables, metrics)
ROUTES = [route for subject in SUBJECTS for route in subject.ROUTES]


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_on_the_page(name: str):
    assert f"| `{name}` |" in (DOCS / "daemon.md").read_text()


def test_no_setting_on_the_page_is_made_up():
    section = (DOCS / "daemon.md").read_text().partition("## Settings")[2].partition("## Profiles")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(Settings.model_fields)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_on_the_page(route):
    assert f"`{route.method} {route.path}" in (DOCS / "api.md").read_text()


def test_every_error_that_the_daemon_can_give_is_on_the_page():
    text = (DOCS / "api.md").read_text()
    client_side = {"daemon_unreachable", "server_unreachable", "bad_answer", "internal", "simulation_failed"}
    assert [code for code in errors.all_kinds() if code not in client_side and f"`{code}`" not in text] == []


@pytest.mark.parametrize("page", sorted({alert.page for alert in ALERTS} | set(AlarmKind)))
def test_every_alarm_and_every_alert_has_its_page(page: str):
    text = (DOCS / "runbook.md").read_text().partition(f"\n## {page}\n")[2].partition("\n## ")[0]
    for part in ("**Meaning.** ", "**Look at** ", "**Do.** "):
        assert part in text, f"docs/runbook.md: {page} lacks {part}"


def test_no_page_of_the_runbook_is_made_up():
    pages = re.findall(r"^## (\w+)$", (DOCS / "runbook.md").read_text(), re.MULTILINE)
    assert sorted(pages) == sorted({alert.page for alert in ALERTS})


@pytest.mark.parametrize("kind", AlarmKind)
def test_every_alarm_is_on_the_daemon_s_page(kind: AlarmKind):
    assert f"`{kind}`" in (DOCS / "daemon.md").read_text()


async def test_every_extension_is_told_and_on_the_page(rig):
    section = (DOCS / "api.md").read_text().partition("## Versions and extensions")[2].partition("\n## ")[0]
    told = (await rig.client.get("/v1"))["extensions"]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == told

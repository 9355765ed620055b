"""A real Prometheus and its promtool against the real daemon: scrapes, rules, and every panel of the dashboard."""

import contextlib
import re
from collections.abc import AsyncIterator

import pytest
from daemon_rig import Rig, run_daemon, write_profile
from metrics_samples import facts, text_of
from prometheus_rig import MONITORING, Prometheus, program, promtool, scraping

from tokenflow.wire import AlarmKind, GpuInfo
from tokenflowd.gpus.watch import GpuWatch
from tokenflowd.metrics import dashboard, panels, rules
from tokenflowd.metrics.alerts import ALERTS

PANELS = [(panel, query) for row in panels.ROWS.values() for panel in row for query in panel.queries]


def test_promtool_finds_nothing_wrong_with_names_and_help():
    outcome = promtool("check", "metrics", text=text_of(facts()))
    assert (outcome.returncode, outcome.stdout + outcome.stderr) == (0, "")


def test_the_rules_and_the_scrape_configuration_are_valid():
    for what, name in (("rules", rules.RULES_FILE), ("config", "prometheus.yml")):
        outcome = promtool("check", what, name)
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert len(ALERTS) == len({alert.name for alert in ALERTS}) == len({alert.page for alert in ALERTS})


def test_every_alert_fires_on_its_planted_fault_and_not_before():
    outcome = promtool("test", "rules", "alerts.test.yml")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_without_its_fault_an_alert_is_silent(alert, tmp_path):
    """The test that promtool runs can fail: with the planted values at zero (or a target that is up) nothing fires."""
    text = (MONITORING / "alerts.test.yml").read_text()
    blocks = text.split("  - name: ")
    block = next(block for block in blocks if block.startswith(f"{alert.name}\n"))
    quiet = "1x60" if alert.page == "down" else "0x60"
    block = re.sub(r'values: "[^"]*"', f'values: "{quiet}"', block)
    (tmp_path / rules.RULES_FILE).write_text((MONITORING / rules.RULES_FILE).read_text())
    (tmp_path / "test.yml").write_text(f"{blocks[0]}  - name: {block}")
    outcome = promtool("test", "rules", str(tmp_path / "test.yml"))
    assert outcome.returncode != 0
    assert alert.name in outcome.stdout + outcome.stderr


class Gpus:
    def read(self) -> list[GpuInfo]:
        return facts().status.gpus


@contextlib.asynccontextmanager
async def watched(
    monkeypatch: pytest.MonkeyPatch, rules_text: str, **settings: object
) -> AsyncIterator[tuple[Rig, Prometheus]]:
    """A daemon with a GPU, and a Prometheus that scrapes it."""
    program("prometheus")
    monkeypatch.setattr(GpuWatch.__init__, "__defaults__", (Gpus,))
    async with run_daemon(metrics_listen="127.0.0.1:0", **settings) as rig:
        url = (await rig.client.get("/v1/status"))["daemon"]["metrics_url"]
        target = url.removeprefix("http://").removesuffix("/metrics")
        async with scraping(target, rules_text) as prometheus:
            yield rig, prometheus


def impatient(text: str) -> str:
    """The rules without their waiting times: what they look for is the same."""
    return re.sub(r"^( +for:) \w+$", r"\1 0s", text, flags=re.MULTILINE)


async def test_every_panel_of_the_dashboard_has_data(home, monkeypatch):
    async with watched(monkeypatch, rules.render_rules()) as (rig, prometheus):
        await rig.client.start()
        await prometheus.query_until("rate(tokenflow_scheduler_steps_total[5s]) > 0")
        for _, query in PANELS:
            expression = dashboard.expression(query, '{job="tokenflow"}').replace("$__rate_interval", "10s")
            await prometheus.query_until(expression)


async def test_every_rule_loads_and_alarms_of_the_daemon_fire(home, monkeypatch):
    write_profile("ill", "disabled")
    write_profile("stuck", "wedged")
    write_profile("crash", "exit=3")
    async with watched(monkeypatch, impatient(rules.render_rules()), wedged_after_s=1.0) as (rig, prometheus):
        groups = (await prometheus.get("rules"))["groups"]
        assert [rule["name"] for rule in groups[0]["rules"]] == [alert.name for alert in ALERTS]
        await rig.client.start("ill")
        await fires(prometheus, AlarmKind.PLUGIN_DISABLED)
        await rig.client.stop()
        await rig.client.start("stuck")
        await fires(prometheus, AlarmKind.ENGINE_WEDGED)
        await rig.client.stop()
        await rig.client.start("crash")
        await fires(prometheus, AlarmKind.ENGINE_FAILED)
        health = {rule["name"]: rule["health"] for rule in (await prometheus.get("rules"))["groups"][0]["rules"]}
        assert set(health.values()) == {"ok"}, health


async def test_a_daemon_that_is_gone_is_told(home, monkeypatch):
    async with watched(monkeypatch, impatient(rules.render_rules())) as (rig, prometheus):
        await prometheus.query_until('up{job="tokenflow"} == 1')
        rig.daemon.ending.request("the test")
        await rig.ended()
        await prometheus.query_until('ALERTS{alertname="TokenFlowDown",alertstate="firing"}')


async def fires(prometheus: Prometheus, kind: AlarmKind) -> None:
    alert = next(alert for alert in ALERTS if alert.page == kind)
    await prometheus.query_until(f'ALERTS{{alertname="{alert.name}",alertstate="firing"}}')

"""The metrics: names and help word for word, samples of known facts, the ways to them, and their failures."""

import asyncio
import contextlib
import json
import os
import re
import socket
from dataclasses import replace
from pathlib import Path

import aiohttp
import msgspec
import pytest
import yarl
from daemon_rig import Client, Rig, run_daemon, write_profile
from document_samples import status_document
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_samples import facts, text_of
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from tokenflow.wire import EngineState
from tokenflowd.metrics import endpoint, generate, table
from tokenflowd.metrics.collector import render
from tokenflowd.metrics.facts import Facts
from tokenflowd.metrics.listen import Listen
from tokenflowd.metrics.table import METRICS, PREFIX, Kind

GOLDEN = Path(__file__).parent / "golden"
DOCS = Path(__file__).parents[2] / "docs"


def check(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("GOLDEN_UPDATE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{name}: to accept, run again with GOLDEN_UPDATE=1"


def test_the_whole_text_is_as_it_was():
    check("metrics.txt", text_of(facts()))


def test_names_and_help_are_api():
    lines = [line for line in text_of(facts()).splitlines() if line.startswith("#")]
    bare = [line for line in text_of(Facts(status_document(EngineState.STOPPED, "/x"))).splitlines() if line[0] == "#"]
    assert bare == lines, "also where no engine runs"
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_every_metric_of_the_table_has_samples_and_nothing_else_has():
    samples = {family.name: family for family in parse(text_of(facts()))}
    for metric in METRICS:
        name = PREFIX + metric.name
        family = samples.pop(name.removesuffix("_total") if metric.kind is Kind.COUNTER else name)
        assert family.samples, f"{name} has no samples"
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)
        if metric.bounds:
            told = {sample.labels["le"] for sample in family.samples if "le" in sample.labels}
            assert told == {*map(repr, metric.bounds), "+Inf"}, "the buckets are those of the table"
    assert samples == {}


def test_each_of_several_schedulers_has_its_label_and_what_is_common_has_none():
    whole = facts()
    told = ((0, 3, 20.0), (2, 5, 19.0))  # the second has not been heard yet
    parts = [
        msgspec.structs.replace(whole.telemetry, scheduler_index=index, step_count=count, sent_s=at_s)
        for index, count, at_s in told
    ]
    several = replace(whole, schedulers=tuple(whole.of_scheduler(part, 21.0) for part in parts))
    found = {family.name: family.samples for family in parse(text_of(several))}
    steps = {sample.labels["scheduler"]: sample.value for sample in found["tokenflow_scheduler_steps"]}
    ages_s = {sample.labels["scheduler"]: sample.value for sample in found["tokenflow_telemetry_age_seconds"]}
    assert (steps, ages_s) == ({"0": 3, "2": 5}, {"0": 1, "2": 2})
    for metric in METRICS:
        name = PREFIX + metric.name
        for sample in found[name.removesuffix("_total") if metric.kind is Kind.COUNTER else name]:
            own = {table.SCHEDULER_LABEL} if metric.is_per_scheduler else set()
            assert set(sample.labels) - {"le"} == set(metric.labels) | own
    text = text_of(several)
    assert text.count("\ntokenflow_engine_state") == len(EngineState)
    rows = [facts_.rows for facts_ in several.schedulers]
    assert all(row.rid in {"tf-a"} for part in rows for row in part)


def test_no_request_is_named():
    assert "tf-" not in text_of(facts())


def test_openmetrics_where_it_is_asked_for():
    body, content_type = render(facts(), "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert len(list(parse_openmetrics(body.decode()))) == len(METRICS)


@given(st.lists(st.floats(0, 1e3), max_size=20))
@settings(deadline=None, max_examples=30)
def test_histograms_are_cumulative_and_end_in_their_count(values):
    found = facts()
    for value in values:
        found.counters.observe_ttft("reading", value)
    family = next(f for f in parse(text_of(found)) if f.name == "tokenflow_ttft_seconds")
    buckets = [s.value for s in family.samples if s.name.endswith("_bucket") and s.labels["class"] == "reading"]
    count = next(s.value for s in family.samples if s.name.endswith("_count") and s.labels["class"] == "reading")
    assert buckets == sorted(buckets)
    assert buckets[-1] == count == len(values) + 1


def test_a_plugin_that_does_not_count_leaves_zeros():
    found = facts()
    found.telemetry.counters = None
    assert 'tokenflow_generated_tokens_total{class="reading"} 0.0' in text_of(found)


def test_what_is_generated_is_current():
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    assert generate.updated(page) == page, "run: python -m tokenflowd.metrics.generate docs"
    for name, text in generate.files().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, "run: python -m tokenflowd.metrics.generate docs"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9464", Listen("127.0.0.1", 9464)),
        ("[::1]:0", Listen("::1", 0)),
        ("gpu7:80", Listen("gpu7", 80)),
        ("", None),
    ],
)
def test_addresses(text, expected):
    assert Listen.parse(text) == expected
    assert str(Listen.parse(text) or "") == text


@pytest.mark.parametrize("text", ["9464", ":9464", "::1:9464", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1", "a:b"])
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match=r"port|HOST"):
        Listen.parse(text)


async def test_both_ways_give_the_same_metrics(home):
    async with run_daemon(metrics_listen="127.0.0.1:0") as rig:
        await rig.client.start()
        await rig.client.engine_becomes("serving")
        url = (await rig.client.get("/v1/status"))["daemon"]["metrics_url"]
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert response.content_type == "text/plain"
            over_tcp = await response.text()
        over_socket = await text_over(rig.client)
    heads = [[line for line in text.splitlines() if line[0] == "#"] for text in (over_tcp, over_socket)]
    assert heads[0] == heads[1]
    assert 'tokenflow_engine_state{state="serving"} 1.0' in over_tcp
    assert 'tokenflow_tune_value{key="quantum_s"} 1.0' in over_tcp
    assert 'tokenflow_tune_info{key="mode",value="observe"} 1.0' in over_tcp


async def text_over(client: Client) -> str:
    async with client.session.get("http://daemon/metrics") as response:
        assert response.status == 200
        return await response.text()


async def value(client: Client, sample: str) -> float | None:
    found = re.search(rf"^{re.escape(sample)} (\S+)$", await text_over(client), re.MULTILINE)
    return None if found is None else float(found[1])


async def test_a_tuned_value_shows_at_once(rig: Rig):
    await rig.client.start()
    await rig.client.ask("PATCH", "/v1/tunables", {"changes": {"quantum_s": 2.5, "variant": "paper"}})
    assert await value(rig.client, 'tokenflow_tune_value{key="quantum_s"}') == 2.5
    assert await value(rig.client, 'tokenflow_tune_info{key="variant",value="paper"}') == 1.0


async def test_an_engine_of_an_older_release_is_scraped(rig: Rig):
    write_profile("older", "old")
    await rig.client.start("older")
    assert await value(rig.client, 'tokenflow_generated_tokens_total{class="reading"}') == 0.0
    assert await value(rig.client, "tokenflow_scheduler_steps_total") > 0


async def test_a_silent_scheduler_does_not_hold_the_scrape_up(rig: Rig):
    write_profile("silent", "silent")
    await rig.client.start("silent")
    async with asyncio.timeout(30):
        while await value(rig.client, 'tokenflow_alarm{kind="telemetry_stale"}') != 1.0:
            await asyncio.sleep(0.1)
    assert await value(rig.client, "tokenflow_telemetry_age_seconds") > 3.0


async def test_only_metrics_are_served_over_tcp_and_no_page_of_a_browser_gets_them(home):
    async with run_daemon(metrics_listen="127.0.0.1:0") as rig, aiohttp.ClientSession() as session:
        url = (await rig.client.get("/v1/status"))["daemon"]["metrics_url"]
        for path in ("/v1/status", "/v1/engine/stop", "/"):
            async with session.get(url.replace("/metrics", path)) as response:
                assert response.status == 404
        async with session.post(url) as response:
            assert response.status == 405
        async with session.get(url, headers={"Origin": "http://evil.example"}) as response:
            assert response.status == 403


async def test_connections_that_ask_nothing_take_no_descriptors_from_others(home, monkeypatch):
    monkeypatch.setattr(endpoint, "MOST_PER_ADDRESS", 5)
    async with run_daemon(metrics_listen="127.0.0.1:0") as rig, aiohttp.ClientSession() as session:
        url = yarl.URL((await rig.client.get("/v1/status"))["daemon"]["metrics_url"])
        held = [await asyncio.open_connection(url.host, url.port) for _ in range(5)]
        reader, writer = await asyncio.open_connection(url.host, url.port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        for _, open_writer in held:
            open_writer.close()
            await open_writer.wait_closed()
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(url) as response:
                        assert response.status == 200
                        break
                await asyncio.sleep(0.01)


async def test_a_port_that_is_taken_costs_the_metrics_and_nothing_else(home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with run_daemon(metrics_listen=address) as rig:
            status = await rig.client.get("/v1/status")
            assert status["daemon"]["metrics_url"] is None
            alarm = status["alarms"][0]
            assert alarm["kind"] == "metrics_unavailable"
            assert address in alarm["message"]
            assert await value(rig.client, 'tokenflow_alarm{kind="metrics_unavailable"}') == 1.0


async def test_counters_go_on_over_a_restart_of_what_reads_them(home):
    """Two daemons' worth of collectors over one engine's telemetry: nothing is kept beside it."""
    body = msgspec.msgpack.encode(facts().telemetry)
    for _ in range(2):
        again = msgspec.msgpack.decode(body, type=type(facts().telemetry))
        assert 'tokenflow_generated_tokens_total{class="reading"} 30.0' in text_of(Facts(facts().status, again))


def test_the_dashboard_uses_every_metric_and_no_other():
    document = json.loads((DOCS / "monitoring" / "dashboard.json").read_text())
    used = " ".join(target["expr"] for panel in document["panels"] for target in panel.get("targets", []))
    names = {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"tokenflow_\w+", used)}
    assert names == {PREFIX + metric.name for metric in METRICS}

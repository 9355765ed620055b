"""Metrics of the real engine: counted to the token, valid to Prometheus, and still counting in the next daemon."""

import asyncio
import json
import os
import re
import signal
import subprocess
import time
import urllib.request

import psutil
import pytest
from engine_rig import Rig
from prometheus_rig import program, scraping

from tokenflowd.metrics import dashboard, panels, rules

pytestmark = pytest.mark.engine
TWO_LAYERS = ("--load-format", "dummy", "--json-model-override-args", '{"num_hidden_layers": 2}')
TOKENS = 'tokenflow_generated_tokens_total{class="reading"}'
FIRST_TOKENS = 'tokenflow_ttft_seconds_count{class="reading"}'
EFFECTIVE = 'tokenflow_effective_tokens_total{class="reading"}'
STREAMS = 6
STEPS = "tokenflow_scheduler_steps_total"


def streamed(rig: Rig, token_count: int) -> None:
    body = {"model": "x", "stream": True, "max_tokens": token_count, "ignore_eos": True, "prompt": "Hello"}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{rig.url}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert b"[DONE]" in answer.read()


def scraped(rig: Rig) -> str:
    url = rig.status()["daemon"]["metrics_url"]
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def samples(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(tokenflow\S+) (\S+)$", text, re.MULTILINE)}


def samples_when(rig: Rig, sample: str, value: float) -> dict[str, float]:
    """The samples once that one has its value: the engine tells about once a second when it is idle."""
    until_s = time.monotonic() + 30.0
    while (found := samples(scraped(rig))).get(sample) != value:
        assert time.monotonic() < until_s, f"{sample}: {found.get(sample)}, not {value}"
        time.sleep(0.2)
    return found


async def every_panel_has_data(rig: Rig) -> None:
    """Those of GPUs apart. Streams run meanwhile, as in the demo."""
    target = rig.status()["daemon"]["metrics_url"].removeprefix("http://").removesuffix("/metrics")
    async with scraping(target, rules.render_rules()) as prometheus:
        streams = [asyncio.create_task(asyncio.to_thread(streamed, rig, 200)) for _ in range(STREAMS)]
        await prometheus.query_until("rate(tokenflow_generated_tokens_total[5s]) > 0")
        for panel in [panel for row in panels.ROWS.values() for panel in row if not panel.needs_gpu]:
            for query in panel.queries:
                expression = dashboard.expression(query, '{job="tokenflow"}').replace("$__rate_interval", "10s")
                await prometheus.query_until(expression)
        await asyncio.gather(*streams)


def test_tokens_are_counted_exactly_and_the_next_daemon_goes_on(own_engine: Rig):
    own_engine.start(*TWO_LAYERS)
    assert samples(scraped(own_engine))[TOKENS] == 0.0
    streamed(own_engine, 24)
    first = samples_when(own_engine, TOKENS, 24.0)
    assert first[FIRST_TOKENS] == 1.0
    assert 0.0 < first[EFFECTIVE] <= 24.0
    assert first["tokenflow_policy_decision_seconds_count"] > 0
    assert first['tokenflow_requests{state="running"}'] == 0.0

    asyncio.run(every_panel_has_data(own_engine))
    tokens = 24.0 + STREAMS * 200
    samples_when(own_engine, TOKENS, tokens)

    before = own_engine.status()
    os.kill(before["daemon"]["pid"], signal.SIGKILL)
    psutil.Process(before["daemon"]["pid"]).wait(10.0)
    assert own_engine.tfctl("start").returncode == 0
    assert own_engine.status()["engine"]["pid"] == before["engine"]["pid"], "taken over"
    second = samples(scraped(own_engine))
    assert second[TOKENS] == tokens
    assert second[STEPS] >= first[STEPS]
    streamed(own_engine, 10)
    third = samples_when(own_engine, TOKENS, tokens + 10.0)
    assert third[FIRST_TOKENS] == second[FIRST_TOKENS] + 1.0

    text = scraped(own_engine)
    own_engine.stop()
    own_engine.assert_nothing_left()
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, timeout=60
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")

"""The clients that people use, on the real engine: openai, curl, httpx, and the example page in a real browser."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

LIMIT_S = 90.0
FIGURES = """
return [...document.querySelectorAll("#figures div")].map(
  (one) => [one.querySelector("dt").textContent, one.querySelector("dd").textContent]);
"""
QUESTION = [{"role": "user", "content": "Tell me about the sea."}]
PAGE = Path(__file__).parents[2] / "docs" / "examples" / "reader.html"


def test_openai_s_client(engine):
    client = openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", timeout=LIMIT_S)
    asked = client.chat.completions.with_raw_response.create(
        model=engine.model,
        messages=QUESTION,
        max_tokens=12,
        stream=True,
        extra_body={"tokenflow": {"rate": 17.5}, "ignore_eos": True},
    )
    rid = asked.headers["x-tokenflow-request-id"]
    pieces = [chunk.choices[0].delta.content or "" for chunk in asked.parse() if chunk.choices]
    assert len([piece for piece in pieces if piece]) > 5
    row = engine.row_when(rid, lambda row: row["state"] == "finished")
    assert (row["generated_tokens"], row["rate_tok_s"], row["rate_source"]) == (12, 17.5, "body")
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model=engine.model, messages=QUESTION, stream=True, extra_body={"tokenflow": {"rate": "fast"}}
        )
    assert refused.value.param == "tokenflow.rate"


def test_curl(engine):
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed here")
    body = {"model": engine.model, "prompt": "The sea", "max_tokens": 8, "stream": True, "ignore_eos": True}
    done = subprocess.run(
        [
            *(curl, "-sN", "-D", "-", f"{engine.url}/v1/completions", "-d", json.dumps(body)),
            *("-H", "X-TokenFlow-Rate: 5", "-H", "Content-Type: application/json"),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    headers, _, events = done.stdout.partition("\n\n")
    assert "x-accel-buffering: no" in headers.lower()
    assert "cache-control: no-cache" in headers.lower()
    data = [line.removeprefix("data: ") for line in events.splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    assert len(data) == 9


def test_httpx(engine):
    body = {"model": engine.model, "messages": QUESTION, "max_tokens": 8, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"{engine.url}/v1/chat/completions", json=body, timeout=LIMIT_S) as response:
        arrivals_s = [time.monotonic() for line in response.iter_lines() if line.startswith("data: {")]
    assert len(arrivals_s) >= 8
    assert arrivals_s[-1] > arrivals_s[0], "they came one by one"


@pytest.fixture
def browser() -> Iterator[Any]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed here (Debian: chromium, chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    window = webdriver.Chrome(options=options, service=Service(driver))
    yield window
    window.quit()


def until(condition: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    deadline_s = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, "not within the limit"
        time.sleep(0.2)
    return found


def test_the_page_in_a_browser(engine, browser):
    """What its reader does shows in `tfctl ps`: he reads, stands still, leaves."""
    browser.get(PAGE.as_uri())
    for field, value in (("url", engine.url), ("tokens", "2000"), ("rate", "3")):
        element = browser.find_element("id", field)
        element.clear()
        element.send_keys(value)
    browser.find_element("id", "start").click()

    def figures() -> dict[str, str]:
        return dict(browser.execute_script(FIGURES))  # at once: the page makes them anew twenty times a second

    rid = until(lambda: (found := figures().get("Request", "")).startswith("tf-") and found)
    row = engine.row_when(rid, lambda row: row["rate_tok_s"] == 3.0 and row["consumed_tokens"] >= 8, LIMIT_S)
    assert browser.find_element("id", "text").text
    until(lambda: int(figures()["Acks"].split()[0]) >= 3)

    browser.find_element("id", "pause").click()
    read_tokens = int(figures()["Read"].split()[0])
    row = engine.row_when(rid, lambda row: row["consumed_tokens"] >= read_tokens)
    held_s = row["runway_s"]
    row = engine.row_when(rid, lambda row: row["runway_s"] > held_s + 3.0, LIMIT_S)
    # Without its acks the server would have it read on: 3 tokens a second, at least 9 by now.
    assert row["consumed_tokens"] <= read_tokens + 4

    browser.find_element("id", "stop").click()
    assert until(lambda: browser.find_element("id", "message").text) == "You left."
    assert engine.row_when(rid, lambda row: row["state"] != "running" and row["state"] != "preempted")["state"] in (
        "aborted",
        "finished",
    )

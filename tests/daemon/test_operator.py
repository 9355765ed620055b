"""The operator's hand through the daemon: tunables, held requests, events."""

import asyncio
import json
import os

import aiohttp
import pytest
from daemon_rig import write_profile

from tokenflow.events import Event, EventKind
from tokenflow.policy.tunables import specs
from tokenflowd import event_book
from tokenflowd.event_book import EventBook, EventIntake


async def lines(rig, path: str, count: int | None = None) -> list[dict]:
    """All lines of an NDJSON answer, or the first `count` of one that goes on."""
    found = []
    async with (
        asyncio.timeout(20),
        rig.client.session.get(f"http://daemon{path}", timeout=aiohttp.ClientTimeout()) as response,
    ):
        assert response.status == 200, await response.text()
        async for line in response.content:
            found.append(json.loads(line))
            if len(found) == count:
                break
    return found


def values(document: dict) -> dict:
    return {row["key"]: row["value"] for row in document["tunables"]}


async def test_without_an_engine_the_tunables_have_no_values(rig):
    document = await rig.client.get("/v1/tunables")
    assert [row["key"] for row in document["tunables"]] == [spec.key for spec in specs()]
    assert set(values(document).values()) == {None}
    status, error = await rig.client.ask("PATCH", "/v1/tunables", {"changes": {"quantum_s": 2}})
    assert (status, error["error"]["code"]) == (409, "conflict")
    status, _ = await rig.client.ask("POST", "/v1/requests/rid-1/pause")
    assert status == 409


async def test_what_is_tuned_is_read_back_with_its_origin(rig):
    await rig.client.start()
    status, document = await rig.client.ask("PATCH", "/v1/tunables", {"changes": {"quantum_s": 2, "variant": "paper"}})
    assert status == 200, document
    assert (document["revision"], document["dry_run"]) == (1, False)
    assert values(document)["quantum_s"] == 2.0
    origins = {row["key"]: row["origin"] for row in document["tunables"]}
    assert (origins["quantum_s"], origins["default_rate_tok_s"], origins["reserve_s"]) == (
        "tuned",
        "profile",
        "default",
    )
    assert values(await rig.client.get("/v1/tunables"))["variant"] == "paper"
    policy = (await rig.client.get("/v1/status"))["policy"]
    assert (policy["variant"], policy["revision"]) == ("paper", 1)
    await rig.client.stop()


async def test_a_dry_run_changes_nothing(rig):
    await rig.client.start()
    body = {"changes": {"quantum_s": 2}, "dry_run": True}
    _, document = await rig.client.ask("PATCH", "/v1/tunables", body)
    assert (document["dry_run"], document["revision"], values(document)["quantum_s"]) == (True, 0, 2.0)
    assert values(await rig.client.get("/v1/tunables"))["quantum_s"] == 1.0
    await rig.client.stop()


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ({"changes": {"quantum_s": 99, "nosuch": 1}}, 400, "usage", ("quantum_s", "nosuch")),
        ({"changes": {"quantum_s": 2}, "if_revision": 7}, 412, "revision_mismatch", ()),
        ({"changes": {}, "unknown": 1}, 400, "usage", ("unknown",)),
        ({}, 400, "usage", ("changes",)),
    ],
)
async def test_refusals(rig, body, status, code, words):
    await rig.client.start()
    answered, document = await rig.client.ask("PATCH", "/v1/tunables", body)
    assert (answered, document["error"]["code"]) == (status, code)
    assert all(word in document["error"]["message"] for word in words)
    assert document["error"]["hint"]
    await rig.client.stop()


async def test_a_request_is_held_and_let_go(rig):
    await rig.client.start()
    for action, is_held in (("pause", True), ("resume", False)):
        status, document = await rig.client.ask("POST", f"/v1/requests/rid-1/{action}")
        assert status == 200, document
        assert (document["schema"], document["rid"], document["is_held"]) == ("tokenflow.hold/1", "rid-1", is_held)
        assert document["state"] == "running"
        status, document = await rig.client.ask("POST", f"/v1/requests/nosuch/{action}")
        assert (status, document["error"]["code"], document["error"]["hint"]) == (404, "not_found", "tfctl ps")
    await rig.client.stop()


async def test_a_request_is_explained(rig):
    await rig.client.start()
    status, document = await rig.client.ask("GET", "/v1/requests/rid-1/explain")
    assert status == 200, document
    assert (document["schema"], document["rid"], document["preemptible"]) == ("tokenflow.explain/1", "rid-1", True)
    assert (document["runway_s"], document["terms"]["load_s"]) == (4.0, 0.22)
    status, document = await rig.client.ask("GET", "/v1/requests/nosuch/explain")
    assert (status, document["error"]["code"]) == (404, "not_found")
    await rig.client.stop()
    status, document = await rig.client.ask("GET", "/v1/requests/rid-1/explain")
    assert (status, document["error"]["hint"]) == (409, "tfctl start")


async def test_a_request_is_ended_by_its_exact_id(rig):
    await rig.client.start()
    for wrong in ("nosuch", "rid-", "rid"):
        status, document = await rig.client.ask("POST", f"/v1/requests/{wrong}/abort")
        assert (status, document["error"]["code"], document["error"]["hint"]) == (404, "not_found", "tfctl ps")
    status, document = await rig.client.ask("POST", "/v1/requests/rid-1/abort")
    assert status == 200, document
    assert (document["schema"], document["rid"], document["state"]) == ("tokenflow.abort/1", "rid-1", "running")
    (event,) = await lines(rig, "/v1/events?kind=aborted")
    assert (event["rid"], event["terms"]) == ("rid-1", {"state": "running"})
    assert event["who"].startswith(f"uid={os.getuid()} ")
    logged = await lines(rig, "/v1/logs")
    assert [line["line"] for line in logged if "abort" in line["line"]][-1].endswith("abort rid-1")
    await rig.client.stop()


async def test_events_of_the_engine_and_of_the_daemon_are_one_story(rig):
    await rig.client.start()
    await rig.client.ask("POST", "/v1/requests/rid-1/pause")
    followed = await lines(rig, "/v1/events?follow=1", 2)
    assert [event["kind"] for event in followed] == ["engine_started", "held"]
    assert followed[0]["who"].startswith(f"uid={os.getuid()} ")
    assert (followed[1]["rid"], followed[1]["who"]) == ("rid-1", followed[0]["who"])
    assert followed[0]["at"] <= followed[1]["at"]
    await rig.client.stop()
    assert [event["kind"] for event in await lines(rig, "/v1/events")] == ["engine_started", "held", "engine_stopped"]
    assert [event["kind"] for event in await lines(rig, "/v1/events?n=1")] == ["engine_stopped"]
    assert [event["kind"] for event in await lines(rig, "/v1/events?kind=held,tuned")] == ["held"]
    status, document = await rig.client.ask("GET", "/v1/events?kind=nosuch")
    assert (status, document["error"]["field"]) == (400, "kind")


async def test_an_engine_that_dies_is_an_event(rig):
    started = await rig.client.start()
    os.kill(started["result"]["pid"], 9)
    await rig.client.engine_becomes("failed")
    *_, last = await lines(rig, "/v1/events")
    assert last["kind"] == "engine_failed"
    assert "signal 9" in last["reason"]


async def test_what_the_engine_lost_is_told_and_nothing_is_told_twice(rig):
    write_profile("gap", "gap")
    await rig.client.start("gap")
    for _ in range(2):
        await rig.client.ask("POST", "/v1/requests/rid-1/pause")
    found = await lines(rig, "/v1/events?follow=1", 4)
    assert [event["kind"] for event in found] == ["engine_started", "held", "lost", "held"]
    assert found[2]["terms"] == {"lost_count": 1}
    await rig.client.stop()


@pytest.mark.parametrize(
    ("script", "kind", "word"),
    [("disabled", "plugin_disabled", "KeyError"), ("blocked", "enforce_blocked", "--pp-size 2")],
)
async def test_alarms(rig, script, kind, word):
    path = write_profile(script, script)
    path.write_text(path.read_text().replace("[tunables]", '[tunables]\nmode = "enforce"'))
    await rig.client.start(script)
    async with asyncio.timeout(20):
        while not (alarms := (await rig.client.get("/v1/status"))["alarms"]):
            await asyncio.sleep(0.05)
    assert [alarm["kind"] for alarm in alarms] == [kind]
    assert word in alarms[0]["message"]
    assert "tfctl" in alarms[0]["hint"]
    await rig.client.stop()


async def test_a_follower_that_is_overtaken_is_told_how_many_it_missed(monkeypatch):
    monkeypatch.setattr(event_book, "KEPT_EVENTS", 4)
    book = EventBook()
    book.note(EventKind.HELD, rid="first")
    follower = book.follow(10)
    assert (await anext(follower)).rid == "first"
    for number in range(10):
        book.note(EventKind.HELD, rid=f"tf-{number}")
    lost, *rest = [await anext(follower) for _ in range(5)]
    assert (lost.kind, lost.terms) == (EventKind.LOST, {"lost_count": 6})
    assert [row.rid for row in rest] == ["tf-6", "tf-7", "tf-8", "tf-9"]
    book.close()
    assert [row async for row in follower] == []


async def test_the_stamp_of_the_engine_becomes_wall_time():
    book = EventBook()
    EventIntake(book).take([Event(1, 0.0, EventKind.FAULT), Event(2, 1e12, EventKind.FAULT)])
    first, second = book.last(2)
    assert first.at < second.at
    assert first.at.endswith("Z")


async def test_a_follower_that_does_not_read_holds_nobody_up(rig):
    book = rig.daemon._events
    lazy = await rig.client.session.get("http://daemon/v1/events?follow=1", timeout=aiohttp.ClientTimeout())
    text = "x" * 2000
    for number in range(3 * event_book.KEPT_EVENTS):
        book.note(EventKind.FAULT, reason=text, terms={"fault_count": number})
        if number % 100 == 0:
            await asyncio.sleep(0)
    (last,) = await lines(rig, "/v1/events?n=1")
    assert last["terms"]["fault_count"] == 3 * event_book.KEPT_EVENTS - 1
    told = []
    async with asyncio.timeout(20):
        while not told or told[-1]["sequence"] != last["sequence"]:
            told.append(json.loads(await lazy.content.readline()))
    lazy.close()
    lost = [event["terms"]["lost_count"] for event in told if event["kind"] == "lost"]
    assert lost
    assert sum(lost) + len(told) - len(lost) == 3 * event_book.KEPT_EVENTS

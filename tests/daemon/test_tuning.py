"""Tuning through the daemon: kept on the disk, reset, read back, and what it did to readers."""

import asyncio
import os
import signal
import stat
import tomllib

import pytest
from daemon_process import LIMIT_S, running_daemon
from daemon_rig import Client, make_settings, run_daemon, write_profile

from tokenflow import link, locations
from tokenflow.errors import ConfigurationError, OperationError
from tokenflow.events import EventKind
from tokenflowd.effects import QualityHistory
from tokenflowd.event_book import EventBook
from tokenflowd.tuned_file import TunedFile


async def tune(rig, **body) -> tuple[int, dict]:
    return await rig.client.ask("PATCH", "/v1/tunables", body)


async def rows(rig) -> dict[str, dict]:
    return {row["key"]: row for row in (await rig.client.get("/v1/tunables"))["tunables"]}


async def test_what_is_persisted_outlives_engine_and_daemon(home):
    async with run_daemon() as rig:
        await rig.client.start()
        status, document = await tune(rig, changes={"quantum_s": "2", "mode": "off"}, persist=True)
        assert status == 200, document
        await tune(rig, changes={"reserve_s": 1.5})
    async with run_daemon() as rig:
        await rig.client.start()
        found = await rows(rig)
        assert (found["quantum_s"]["persisted"], found["mode"]["persisted"]) == (2.0, "off")
        assert (found["reserve_s"]["persisted"], found["reserve_s"]["origin"]) == (None, "default")
        assert (found["quantum_s"]["value"], found["mode"]["value"]) == (2.0, "off")
        assert (found["quantum_s"]["origin"], found["mode"]["origin"]) == ("persisted", "persisted")
        await rig.client.stop()


async def test_every_value_says_where_it_comes_from(home, monkeypatch):
    path = locations.user_config_folder() / "tokenflow.toml"
    path.write_text("[tunables]\nreserve_s = 0.5\nsurplus_s = 2.0\n")
    monkeypatch.setenv("TOKENFLOW_SURPLUS_S", "2.0")
    async with run_daemon() as rig:
        await rig.client.start()
        await tune(rig, changes={"quantum_s": 2}, persist=True)
        await tune(rig, changes={"weight_ttft": 2})
        found = await rows(rig)
        assert {key: (row["origin"], row["source"]) for key, row in found.items() if row["origin"] != "default"} == {
            "reserve_s": ("file", str(path)),
            "surplus_s": ("environment", "TOKENFLOW_SURPLUS_S"),
            "quantum_s": ("persisted", str(rig.daemon.paths.tuned)),
            "weight_ttft": ("tuned", None),
            "default_rate_tok_s": ("profile", "scripted"),
        }
        assert {key for key, row in found.items() if row["applies"] != "live"} == {"default_rate_tok_s"}
        await rig.client.stop()


async def test_without_an_engine_values_are_kept_for_the_next_one(rig):
    status, document = await tune(rig, changes={"quantum_s": 2}, persist=True)
    assert (status, document["revision"]) == (200, 0)
    assert (await rows(rig))["quantum_s"]["persisted"] == 2.0
    status, document = await tune(rig, changes={"quantum_s": 99, "nosuch": 1}, persist=True)
    assert (status, document["error"]["code"]) == (400, "usage")
    assert all(key in document["error"]["message"] for key in ("quantum_s", "nosuch"))
    status, _ = await tune(rig, changes={"quantum_s": 3}, persist=True, dry_run=True)
    assert status == 200
    status, _ = await tune(rig, changes={"quantum_s": 3}, persist=True, if_revision=4)
    assert status == 412
    assert (await rows(rig))["quantum_s"]["persisted"] == 2.0


async def test_a_refused_change_leaves_engine_and_file_as_they_were(rig):
    await rig.client.start()
    await tune(rig, changes={"quantum_s": 2}, persist=True)
    before = rig.daemon.paths.tuned.read_text()
    for body in ({"changes": {"quantum_s": 3, "reserve_s": 99}}, {"changes": {"quantum_s": 3}, "if_revision": 9}):
        status, _ = await tune(rig, persist=True, **body)
        assert status in (400, 412)
    assert rig.daemon.paths.tuned.read_text() == before
    assert (await rows(rig))["quantum_s"]["value"] == 2.0
    assert [path.name for path in rig.daemon.paths.tuned.parent.iterdir() if path.name.startswith(".tuned")] == []
    await rig.client.stop()


async def test_where_nothing_can_be_written_nothing_is_changed(rig):
    await rig.client.start()
    rig.daemon.paths.tuned.with_name(f".{rig.daemon.paths.tuned.name}.{os.getpid()}").mkdir()  # in the draft's way
    status, document = await tune(rig, changes={"quantum_s": 2}, persist=True)
    assert (status, document["error"]["code"], document["error"]["field"]) == (500, "failed", "persist")
    assert "nothing was changed" in document["error"]["message"]
    assert (await rows(rig))["quantum_s"]["value"] == 1.0
    await rig.client.stop()


async def test_a_reset_goes_back_to_profile_and_settings_and_forgets(rig):
    await rig.client.start()
    await tune(rig, changes={"quantum_s": 2, "default_rate_tok_s": 9}, persist=True)
    await tune(rig, changes={"reserve_s": 3})
    status, _ = await tune(rig, reset=["quantum_s"])
    assert status == 200
    found = await rows(rig)
    assert (found["quantum_s"]["value"], found["quantum_s"]["persisted"]) == (1.0, None)
    assert (found["default_rate_tok_s"]["value"], found["reserve_s"]["value"]) == (9.0, 3.0)
    await tune(rig, reset=["*"])
    found = await rows(rig)
    assert (found["default_rate_tok_s"]["value"], found["reserve_s"]["value"]) == (5.0, 0.5)
    assert {row["persisted"] for row in found.values()} == {None}
    await rig.client.stop()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"reset": ["nosuch"]}, "nosuch"),
        ({"changes": {"quantum_s": 2}, "reset": ["quantum_s"]}, "quantum_s"),
        ({"changes": {"metrics_listen": ""}}, "metrics_listen"),
    ],
)
async def test_bad_wishes(rig, body, field):
    status, document = await tune(rig, persist=True, **body)
    assert (status, document["error"]["code"], document["error"]["field"]) == (400, "usage", field)


async def test_a_broken_file_stops_the_start_and_says_how_to_go_on(rig):
    path = rig.daemon.paths.tuned
    path.write_text("[tunables]\nquantum_s = 99\nnosuch = 1\n")
    status, document = await rig.client.ask("POST", "/v1/engine/start", {"profile": "scripted"})
    assert (status, document["error"]["code"]) == (422, "invalid_configuration")
    assert f"{path}:2: tunables.quantum_s" in document["error"]["message"]
    assert f"{path}:3: tunables.nosuch: unknown key" in document["error"]["message"]
    assert "tfctl tune --reset" in document["error"]["hint"]
    status, _ = await tune(rig, changes={"reserve_s": 1}, persist=True)
    assert status == 422
    status, _ = await tune(rig, reset=["*"])
    assert status == 200
    await rig.client.start()
    await rig.client.stop()


async def test_an_engine_that_cannot_be_started_by_itself_is_told_in_the_status(home):
    async with run_daemon(autostart=True, on_daemon_stop="stop") as rig:
        await rig.client.start()
        path = rig.daemon.paths.tuned
    path.write_text("[tunables]\nquantum_s = 99\n")
    async with run_daemon(autostart=True) as rig:
        status = await rig.client.get("/v1/status")
        assert status["engine"]["state"] == "failed"
        assert f"{path}:2: tunables.quantum_s" in status["engine"]["reason"]
        assert "tfctl tune --reset" in status["engine"]["reason"]
        assert [alarm["kind"] for alarm in status["alarms"]] == ["engine_failed"]
        await tune(rig, reset=["*"])
        assert (await rig.client.start())["state"] == "done"
        await rig.client.stop()


async def test_levels_that_do_not_fit_together_are_refused_at_the_start(rig):
    path = write_profile("tight", "serve")
    tight = "[tunables]\noverload_enter_ratio = 0.6\noverload_exit_ratio = 0.5"
    path.write_text(path.read_text().replace("[tunables]", tight))
    await tune(rig, changes={"overload_exit_ratio": 0.7}, persist=True)
    status, document = await rig.client.ask("POST", "/v1/engine/start", {"profile": "tight"})
    assert (status, document["error"]["code"]) == (422, "invalid_configuration")


async def test_the_effect_of_a_change_is_told(home):
    async with run_daemon(effect_window_s=3.0) as rig:
        await rig.client.start()
        await tune(rig, changes={"quantum_s": 2, "write_through": False})
        await tune(rig, changes={"quantum_s": 2})  # nothing new: no effect
        async with asyncio.timeout(20):
            while not (found := rig.daemon._events.last(1, frozenset({EventKind.EFFECT}))):
                await asyncio.sleep(0.1)
        terms = found[0].terms
        assert terms["changed"] == "quantum_s: 1 -> 2, write_through: true -> false"
        assert found[0].who.startswith(f"uid={os.getuid()} ")
        assert terms["after_window_s"] >= 1
        assert (terms["after_stall_s_per_min"], terms["other_change_count"]) == (0.0, 0)
        assert {"before_ttft_p50_s", "after_ttft_p99_s", "after_preemptions_per_min", "before_made_tok_s"} <= {*terms}
        await rig.client.stop()


# The file and the history by themselves -------------------------------------------------------------------------


def test_the_operators_comments_stay(tmp_path):
    path = tmp_path / "tuned.toml"
    path.write_text('# mine\n[tunables]\nquantum_s = 1.0 # why\nmode = "off"\n')
    TunedFile(path).draft({"reserve_s": 2.0, "mode": "enforce"}, ["quantum_s"], "uid=0 pid=1").commit()
    text = path.read_text()
    assert "# mine" in text
    assert "by uid=0 pid=1" in text
    assert tomllib.loads(text)["tunables"] == {"reserve_s": 2.0, "mode": "enforce"}


def test_a_file_of_a_newer_format_is_not_guessed_at(tmp_path):
    path = tmp_path / "tuned.toml"
    path.write_text("format = 2\n[tunables]\n")
    with pytest.raises(ConfigurationError, match="newer"):
        TunedFile(path).load()


def test_a_draft_that_is_given_up_leaves_nothing(tmp_path):
    path = tmp_path / "deep" / "tuned.toml"
    draft = TunedFile(path).draft({"mode": "off"}, [], None)
    draft.discard()
    assert list(path.parent.iterdir()) == []
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_folder_in_the_files_place_is_told(tmp_path):
    path = tmp_path / "file" / "tuned.toml"
    path.parent.write_text("")
    with pytest.raises(OperationError, match="cannot write"):
        TunedFile(path).draft({"mode": "off"}, [], None)


def test_the_history_keeps_before_and_after_apart():
    from scripted_engine import Behaviour, Policy, telemetry

    history = QualityHistory(60.0, os.getpid())
    now_s = 1000.0
    for second in range(20):
        message = telemetry(Behaviour("serve"), second, Policy())
        message.streams = [stream(f"rid-{second}", now_s + second - 1.0, 0.2 if second < 10 else 0.8)]
        message.quality.preemption_total = 3 * max(0, second - 10)
        message.quality.stall_s_total = 0.5 * min(second, 10)
        message.quality.raw_tok_s = 100.0 if second < 10 else 50.0
        history.take(message, now_s + second)
    before, after = history.figures(now_s, now_s + 9), history.figures(now_s + 10, now_s + 19)
    assert (before["ttft_p50_s"], after["ttft_p50_s"]) == (0.2, 0.8)
    assert (before["preemptions_per_min"], after["preemptions_per_min"]) == (0.0, 180.0)
    assert (before["stall_s_per_min"], after["stall_s_per_min"]) == (30.0, 0.0)
    assert (before["made_tok_s"], after["made_tok_s"]) == (100.0, 50.0)
    assert (before["window_s"], after["first_token_count"]) == (9.0, 9)
    assert EventBook().last(1) == []


def stream(rid: str, arrival_s: float, ttft_s: float) -> link.StreamState:
    from scripted_engine import stream as scripted

    state = scripted(1, arrival_s)
    state.rid, state.arrival_s = rid, arrival_s
    state.buffer.first_delivery_s = arrival_s + ttft_s
    state.buffer.stall_s = 0.0
    return state


async def test_what_was_tuned_survives_a_crash_but_not_a_stop(home):
    async with run_daemon(restart_limit_count=2, restart_backoff_s=0.1) as rig:
        started = await rig.client.start()
        await tune(rig, changes={"quantum_s": 2, "default_rate_tok_s": 9})
        await rig.client.ask("PUT", "/v1/mode", {"mode": "off"})
        await tune(rig, changes={"reserve_s": 3}, dry_run=True)
        await rig.client.get("/v1/tunables")  # what the mode is now, the engine says
        os.kill(started["result"]["pid"], signal.SIGKILL)
        await rig.client.engine_becomes("failed")
        await rig.client.engine_becomes("serving")
        found = await rows(rig)
        assert {key: row["value"] for key, row in found.items() if row["origin"] == "tuned"} == {
            "quantum_s": 2.0,
            "default_rate_tok_s": 9.0,
            "mode": "off",
        }
        await rig.client.stop()
        await rig.client.start()
        assert [row["key"] for row in (await rows(rig)).values() if row["origin"] == "tuned"] == []
        await rig.client.stop()


async def test_what_was_tuned_before_the_daemon_came_survives_a_crash_too(home, monkeypatch):
    monkeypatch.setenv("TOKENFLOW_RESTART_LIMIT_COUNT", "2")
    monkeypatch.setenv("TOKENFLOW_RESTART_BACKOFF_S", "0.1")
    client = Client(locations.user_socket())
    with running_daemon() as process:
        await client.start()
        status, _ = await client.ask("PATCH", "/v1/tunables", {"changes": {"quantum_s": 2}})
        assert status == 200
        process.kill()
        process.wait()
    with running_daemon() as process:
        pid = (await client.engine_becomes("serving"))["engine"]["pid"]
        await client.get("/v1/tunables")  # asks the engine, as the daemon's own look does every few seconds
        os.kill(pid, signal.SIGKILL)
        await client.engine_becomes("failed")
        await client.engine_becomes("serving")
        found = {row["key"]: row for row in (await client.get("/v1/tunables"))["tunables"]}
        assert (found["quantum_s"]["value"], found["quantum_s"]["origin"]) == (2.0, "tuned")
        await client.stop()
        await client.session.close()
        process.terminate()
        await asyncio.to_thread(process.wait, LIMIT_S)


async def test_settings_that_do_not_fit_a_running_profile_cost_no_status(home):
    """They are valid by themselves, and the next start says what is wrong."""
    path = write_profile("wide", "serve")
    wide = "[tunables]\noverload_enter_ratio = 1.2\noverload_exit_ratio = 1.1"
    path.write_text(path.read_text().replace("[tunables]", wide))
    async with run_daemon() as rig:
        await rig.client.start("wide")
        rig.daemon.reload(lambda: make_settings(tunables={"overload_enter_ratio": 1.0}))
        assert (await rig.client.get("/v1/status"))["engine"]["state"] == "serving"
        status, document = await rig.client.ask("POST", "/v1/engine/restart", {})
        assert (status, document["error"]["code"]) == (422, "invalid_configuration")
        assert (await rig.client.get("/v1/status"))["engine"]["state"] == "serving"
        await rig.client.stop()


async def test_one_ratio_that_was_tuned_does_not_keep_the_engine_from_being_started_again(home):
    path = write_profile("wide", "serve")
    path.write_text(path.read_text().replace("[tunables]", "[tunables]\noverload_enter_ratio = 1.5"))
    async with run_daemon(restart_limit_count=1, restart_backoff_s=0.1) as rig:
        started = await rig.client.start("wide")
        status, document = await tune(rig, changes={"overload_exit_ratio": 1.2})
        assert status == 200, document
        os.kill(started["result"]["pid"], signal.SIGKILL)
        await rig.client.engine_becomes("failed")
        await rig.client.engine_becomes("serving")
        assert (await rows(rig))["overload_exit_ratio"]["value"] == 1.2
        await rig.client.stop()


async def test_what_would_not_start_by_itself_is_not_persisted(rig):
    await rig.client.start()
    assert (await tune(rig, changes={"overload_enter_ratio": 1.5}))[0] == 200
    status, document = await tune(rig, changes={"overload_exit_ratio": 1.2}, persist=True)
    assert (status, document["error"]["field"]) == (400, "persist")
    assert (await rows(rig))["overload_exit_ratio"]["value"] == 0.9
    both = {"overload_exit_ratio": 1.2, "overload_enter_ratio": 1.5}
    assert (await tune(rig, changes=both, persist=True))[0] == 200
    assert rig.daemon.supervisor.lifecycle.levels.tuned.load().overload_exit_ratio == 1.2
    await rig.client.stop()

"""The pure parts: progress, reasons, health, argument merging."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenflow.link import Telemetry
from tokenflow.policy.states import Mode, Variant
from tokenflow.wire import Capacity, EngineState, Latency, PluginState, Quality, Transfers
from tokenflowd import arguments, failure
from tokenflowd.failure import Death, Role
from tokenflowd.observation import Limits, judge
from tokenflowd.progress import StartProgress

# Lines of a real start of SGLang 0.5.23 on a CPU.
REAL_LOG = [
    ("[2026-11-29 17:21:47] server_args={'model_path': '/m', 'tokenizer_path': '/m'", "loading the tokenizer"),
    ("[2026-11-29 17:21:54] Init parallel begin.", "starting the scheduler"),
    ("[2026-11-29 17:21:56] Memory baseline taken. mem usage=0.00 GB", None),
    ("[2026-11-29 17:21:56] Load weight begin. avail mem=21.82 GB", "loading weights"),
    ("Multi-thread loading shards:   0% Completed | 0/1 [00:00<?, ?it/s]", "loading weights 0%"),
    ("Multi-thread loading shards: 100% Completed | 1/1 [00:01<00:00,  1.17s/it]", "loading weights 100%"),
    ("[2026-11-29 17:21:57] Load weight end. elapsed=1.25 s, type=LlamaForCausalLM", "weights loaded"),
    ("[2026-11-29 17:22:00] KV Cache is allocated. dtype: torch.float32, #tokens: 20000", "allocating the KV pool"),
    ("[2026-11-29 17:22:00] Memory pool end. avail mem=20.36 GB", "KV pool allocated"),
    ("[2026-11-29 17:22:00] INFO:     Uvicorn running on http://127.0.0.1:30077 (Press CTRL+C to quit)", "warming up"),
    ("[2026-11-29 17:22:02] The server is fired up and ready to roll!", "ready"),
]


def test_progress_of_a_real_start():
    progress = StartProgress()
    ratio = 0.0
    for line, text in REAL_LOG:
        assert progress.feed(line) is (text is not None)
        assert progress.latest.ratio >= ratio
        assert text is None or progress.latest.text == text
        ratio = progress.latest.ratio
    assert progress.is_fired_up
    assert not progress.feed(REAL_LOG[3][0])  # never back


CRASH_LOG = [
    "ModuleNotFoundError: No module named 'cutlass'",
    "[2026-11-29 17:22:03] Subprocess scheduler_0 (pid=5928) crashed with exit code -9.",
    "[2026-11-29 17:22:03] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
]


def test_the_root_is_named_and_not_what_followed_it():
    followed = Death(Role.MAIN, 5879, -9)
    assert failure.explain(followed, CRASH_LOG) == "the engine's scheduler process 5928 was killed (signal 9)"


def test_the_log_tells_how_a_reaped_scheduler_ended():
    seen = Death(Role.SCHEDULER, 5928, None)
    assert failure.explain(seen, CRASH_LOG) == "the engine's scheduler process 5928 was killed (signal 9)"


def test_an_old_crash_of_another_process_is_not_the_reason():
    assert failure.explain(Death(Role.SCHEDULER, 1, None), CRASH_LOG[1:]) == "the engine's scheduler process 1 is gone"


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (
            [
                "[2026-11-29 17:00:00] Scheduler hit an exception: Traceback (most recent call last):",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
                "RuntimeError: Initialization failed. Please see the error messages above.",
            ],
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        ),
        (
            ["usage: launch.py", "launch.py: error: unrecognized arguments: --colour"],
            "launch.py: error: unrecognized arguments: --colour",
        ),
        (["nothing to see"], None),
    ],
)
def test_the_last_error_of_a_log(lines, error):
    assert failure.last_error(lines) == error
    text = failure.explain(Death(Role.MAIN, 7, 1), lines)
    assert text == "the engine process 7 exited with code 1" + (f": {error}" if error else "")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "[2026-11-29 17:00:00] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000):"
            " address already in use",
            "another process has taken the port: ERROR:    [Errno 98] error while attempting to bind on address",
        ),
        ("OSError: [Errno 28] No space left on device", "the disk is full: OSError: [Errno 28] No space left"),
    ],
)
def test_what_the_machine_refused_is_told_although_a_signal_ended_it(line, cause):
    killed = Death(Role.MAIN, 7, -9)
    text = failure.explain(killed, [line, "[x] SIGQUIT received."])
    assert text.startswith(f"the engine process 7 was killed (signal 9): {cause}")
    served_since = [line, "[x] The server is fired up and ready to roll!"]
    assert failure.explain(killed, served_since) == "the engine process 7 was killed (signal 9)"


def test_a_full_disk_is_seen(tmp_path, monkeypatch):
    assert not failure.is_disk_full(tmp_path)
    assert not failure.is_disk_full(tmp_path / "nowhere")
    usual = failure.os.statvfs(tmp_path)
    full = failure.os.statvfs_result([*usual[:4], 0, *usual[5:]])
    monkeypatch.setattr(failure.os, "statvfs", lambda path: full)
    assert failure.is_disk_full(tmp_path)


LIMITS = Limits(busy_after_s=2.0, wedged_after_s=60.0, telemetry_stale_after_s=3.0)


def telemetry(**fields) -> Telemetry:
    usual = {
        "plugin_version": "1",
        "engine_version": "1",
        "pid": 1,
        "sequence": 1,
        "sent_s": 100.0,
        "step_count": 5,
        "last_step_s": 100.0,
        "has_work": True,
        "mode": Mode.OBSERVE,
        "variant": Variant.TOKENFLOW,
        "overload": False,
        "revision": 0,
        "fault_count": 0,
        "plugin": PluginState.ACTIVE,
        "blocked_by": [],
        "capacity": Capacity(),
        "transfers": Transfers(),
        "latency": Latency(),
        "quality": Quality(),
        "streams": [],
    }
    return Telemetry(**{**usual, **fields})


@pytest.mark.parametrize(
    ("message", "work_since_s", "now_s", "state"),
    [
        (None, None, 1e6, EngineState.SERVING),  # without a plugin nobody counts steps
        (telemetry(), 50.0, 101.0, EngineState.SERVING),
        (telemetry(), 50.0, 102.5, EngineState.BUSY),
        (telemetry(), 50.0, 160.5, EngineState.WEDGED),
        (telemetry(last_step_s=1.0), 99.0, 100.5, EngineState.SERVING),  # work came after a long idle time
        (telemetry(last_step_s=1.0), 99.0, 102.0, EngineState.BUSY),
        (telemetry(last_step_s=None), 99.0, 100.0, EngineState.SERVING),
        (telemetry(has_work=False, last_step_s=1.0), None, 100.5, EngineState.SERVING),  # idle for long
        (telemetry(has_work=False), None, 103.5, EngineState.BUSY),  # silence: a step began after the last message
        (telemetry(has_work=False), None, 161.0, EngineState.WEDGED),
        (telemetry(plugin=PluginState.DISABLED, last_step_s=1.0), 1.0, 1e6, EngineState.SERVING),
    ],
)
def test_health_from_the_step_counter(message, work_since_s, now_s, state):
    assert judge(message, work_since_s, now_s, LIMITS) is state


def test_later_layers_replace_options():
    merged = arguments.merge(["--a", "1", "--b"], ["--c=3", "--list", "x", "y"], ["--a=2", "--list", "z", "-tp", "2"])
    assert merged == ["--b", "--c=3", "--a=2", "--list", "z", "-tp", "2"]
    assert arguments.option_value(merged, "--a") == "2"
    assert arguments.option_value(merged, "--b") is None
    assert arguments.option_value(["--x", "-1"], "--x") == "-1"


@given(st.lists(st.sampled_from(["--a", "--b=1", "2", "-3", "x"])))
def test_merging_with_nothing_changes_nothing(words):
    assert arguments.merge(words) == words
    assert arguments.merge([], words, []) == words


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-30 03:00:00] Receive: obj=GenerateReqInput(text='my secret: CUDA out of memory')",
        "[2026-11-30 03:00:00] Finish: obj=GenerateReqInput(text='my secret'), out={'text': 'no space left on device'}",
        '{"timestamp": "x", "event": "request.received", "obj": {"text": "my secret: a.c:3: error: out of memory"}}',
    ],
)
def test_nothing_of_a_request_is_a_reason(line):
    death = Death(Role.MAIN, 1, 1)
    for lines in ([line, "ValueError: x"], ["ValueError: x", line], [line]):
        assert "secret" not in failure.explain(death, lines)

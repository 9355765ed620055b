"""An engine of a few lines: speaks the link with our structs and misbehaves on request.

Started in SGLang's place through the setting `engine_command`, with SGLang's arguments. `--script` says how it behaves:

    serve               ready at once, telemetry until it is told to end
    slow                never ready
    late=N              ready after N seconds
    exit=N              writes an error and exits with code N while starting
    no-plugin           serves /v1/models and writes SGLang's line, but no link
    incompatible        as no-plugin, with a frontend that says that nothing is hooked
    deaf                serves and ignores SIGTERM and SIGINT
    wedged              serves, has work, and its last step was long ago
    dumb=N              serves; its HTTP process answers nothing any more after N seconds
    old-link            serves with a plugin of the first version of the link
    silent              serves and sends telemetry once
    whole               serves, has a detokenizer, maps a file in /dev/shm, leaves files and a socket in its temp folder
    streams=N           serves with N open streams, which end when they are cut
    crowd=N             serves with N live streams, some of which end and begin with each message, ten times a second
    gap                 tells each event twice, and loses one
    disabled            serves, and its plugin has turned itself off
    old                 serves, and its plugin is of a release that counts less
    blocked             serves, and an option rules `enforce` out
"""

import http.server
import json
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import zmq

from tokenflow import link
from tokenflow.counters import Counters, Direction
from tokenflow.events import Event, EventKind
from tokenflow.policy.buffer import VirtualBuffer
from tokenflow.policy.explanation import explain_numbers
from tokenflow.policy.states import Mode, RateSource, Reason, RequestState
from tokenflow.policy.tunables import Tunables, check, plain
from tokenflow.wire import Capacity, Latency, PluginState, Quality, Transfers

FOLDER = Path(os.environ.get(link.LINK_ENV, "."))
INTERVAL_S = 0.05
kept = []


def option(name: str, default: str = "") -> str:
    arguments = sys.argv[1:]
    return arguments[arguments.index(name) + 1] if name in arguments else default


SCRIPT = option("--script", "serve").partition("=")[0]


class Behaviour:
    def __init__(self, script: str) -> None:
        self.name, _, value = script.partition("=")
        self.number = int(value or 0)
        self.open_stream_count = self.number if self.name == "streams" else 0
        self.is_admission_open = True
        self._started_s = time.monotonic()
        self.crowd = Crowd(self.number) if self.name == "crowd" else None

    def is_ready(self) -> bool:
        if self.name == "late":
            return time.monotonic() - self._started_s > self.number
        return self.name != "slow"

    def is_dumb(self) -> bool:
        return self.name == "dumb" and time.monotonic() - self._started_s > self.number


def bound(kind: int, name: str) -> zmq.Socket:
    socket = zmq.Context.instance().socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(f"ipc://{FOLDER / name}")
    return socket


def reply(**fields) -> link.Reply:
    return link.Reply(**{"plugin_version": "1", "pid": os.getpid(), "plugin": PluginState.ACTIVE, **fields})


def answer_frontend(behaviour: Behaviour) -> None:
    socket = bound(zmq.ROUTER, link.FRONTEND_SOCKET)
    while True:
        *envelope, body = socket.recv_multipart()
        if behaviour.is_dumb():
            continue
        match link.decode_command(body):
            case link.CutStreams():
                say("streams cut")
                behaviour.open_stream_count = 0
            case link.CloseAdmission(reopen=reopen):
                say("admission closed")
                behaviour.is_admission_open = reopen
            case link.AbortStream(rid=rid):
                say(f"abort {rid}")
        answer = reply(is_ready=behaviour.is_ready(), open_stream_count=behaviour.open_stream_count)
        if behaviour.name == "incompatible":
            answer.plugin, answer.plugin_detail, answer.is_ready = PluginState.INCOMPATIBLE, "another version", None
        socket.send_multipart([*envelope, link.encode(answer)])


def stream(number: int, now_s: float) -> link.StreamState:
    buffer = VirtualBuffer(rate_tok_s=10.0)
    buffer.deliver(now_s, 10 * (number + 1))
    return link.StreamState(
        rid=f"rid-{number}",
        parent_rid=None,
        class_name="reading",
        rate_source=RateSource.DEFAULT,
        prompt_tokens=5,
        arrival_s=now_s - number,
        buffer=buffer,
        state=RequestState.RUNNING if number else RequestState.FINISHED,
    )


class Policy:
    """What the scheduler of the script has in force."""

    def __init__(self) -> None:
        told = json.loads(os.environ.get("TOKENFLOW_SETTINGS", "{}"))
        named = {key: told[key] for key in ("mode", "variant", "default_rate_tok_s") if key in told}
        self.tunables, _ = check(named | told.get("tunables", {}), Tunables())
        if SCRIPT == "blocked" and self.tunables.mode is Mode.ENFORCE:
            self.tunables = replace(self.tunables, mode=Mode.OBSERVE)
        self._initial = plain(self.tunables)
        self.revision = 0
        self.held: set[str] = set()
        self.events: list[Event] = []
        self.event_count = 0

    def tuned_keys(self, tunables: Tunables) -> list[str]:
        return [key for key, value in plain(tunables).items() if value != self._initial[key]]

    def note(self, kind: EventKind, rid: str | None = None, who: str | None = None, **terms) -> None:
        self.event_count += 1
        self.events.append(Event(self.event_count, time.monotonic(), kind, rid, None, who, terms))

    def answer(self, command: link.Command) -> dict:
        match command:
            case link.SetMode(mode=Mode.ENFORCE):
                return {"error_code": "unsupported", "error_message": "not yet", "error_hint": "tfctl mode observe"}
            case link.SetMode(mode=mode):
                return self.answer(link.Tune(changes={"mode": mode.value}, who=command.who))
            case link.Tune(if_revision=int(wanted)) if wanted != self.revision:
                return {"error_code": "revision_mismatch", "error_message": f"at {self.revision}"}
            case link.Tune():
                tunables, problems = check(command.changes, self.tunables)
                if problems:
                    text = "; ".join(problem.message for problem in problems)
                    return {"error_code": "usage", "error_message": text, "error_field": problems[0].key}
                if not command.dry_run and tunables != self.tunables:
                    self.tunables = tunables
                    self.revision += 1
                    self.note(EventKind.TUNED, who=command.who, changed=",".join(command.changes))
                return {"tunables": plain(tunables), "tuned_keys": self.tuned_keys(tunables)}
            case link.PauseRequest(rid="rid-1") | link.ResumeRequest(rid="rid-1"):
                kind = EventKind.HELD if isinstance(command, link.PauseRequest) else EventKind.UNHELD
                self.note(kind, command.rid, command.who)
                return {"held_state": RequestState.RUNNING}
            case link.ExplainStream(rid="rid-1"):
                found = explain_numbers(60, 15.0, evict_s=0.08, load_s=0.22, schedule_s=0.02, safety_factor=1.5)
                return {"explanation": {**asdict(found), "rid": "rid-1", "state": "running"}}
            case link.PauseRequest() | link.ResumeRequest() | link.ExplainStream():
                return {"error_code": "not_found", "error_message": "no such request", "error_hint": "tfctl ps"}
            case _:
                return {"tunables": plain(self.tunables), "tuned_keys": self.tuned_keys(self.tunables)}


COUNTERS = Counters()


def count() -> Counters:
    """All of them grow with every message."""
    COUNTERS.plugin_spent_s += 0.001
    COUNTERS.add_tokens("reading", 10)
    COUNTERS.add_effective("reading", 8.0)
    COUNTERS.add_zombies("reading", 1)
    COUNTERS.add_stall("reading", 0.1)
    COUNTERS.add_preemption("reading", Reason.PREEMPTED_SURPLUS)
    COUNTERS.observe_ttft("reading", 0.2)
    COUNTERS.observe_runway("reading", 4.0)
    COUNTERS.decision_s.observe(0.001)
    for direction in Direction:
        COUNTERS.observe_transfer(direction, 0.002)
    return COUNTERS


class Crowd:
    """Many live streams, of which each message ends a few, and begins as many."""

    def __init__(self, size: int) -> None:
        self._live = [self._new(number) for number in range(size)]
        self._begun = size

    def _new(self, number: int) -> link.StreamState:
        made = stream(1, time.monotonic())
        made.rid = f"tf-{number:016x}"
        return made

    def step(self, now_s: float) -> list[link.StreamState]:
        count = len(self._live)
        for made in self._live:
            made.buffer.advance(now_s)
            made.buffer.deliver(now_s, made.buffer.delivered_tokens + 1)
        ended = []
        for _ in range(max(count // 500, 1)):
            ended.append(self._live.pop(0))
            ended[-1].state, ended[-1].ended_s = RequestState.FINISHED, now_s
            self._live.append(self._new(self._begun))
            self._begun += 1
        return self._live + ended


def telemetry(behaviour: Behaviour, sequence: int, policy: Policy) -> link.Telemetry:
    now_s = time.monotonic()
    events, policy.events = policy.events, []
    if behaviour.name == "gap" and events:
        policy.event_count += 1
        events *= 2
    return link.Telemetry(
        link_version=1 if behaviour.name == "old-link" else link.LINK_VERSION,
        plugin_version="1",
        engine_version="0.5.23",
        pid=os.getpid(),
        sequence=sequence,
        sent_s=now_s,
        step_count=sequence,
        last_step_s=1.0 if behaviour.name == "wedged" else now_s,
        has_work=behaviour.name == "wedged",
        mode=policy.tunables.mode,
        variant=policy.tunables.variant,
        overload=False,
        revision=policy.revision,
        fault_count=0,
        plugin=PluginState.DISABLED if behaviour.name == "disabled" else PluginState.ACTIVE,
        plugin_detail="decide: KeyError: 'x'" if behaviour.name == "disabled" else None,
        blocked_by=["--pp-size 2"] if behaviour.name == "blocked" else [],
        capacity=Capacity(capacity_tok_s=50.0, demand_tok_s=40.0, headroom_ratio=0.2),
        transfers=Transfers(),
        latency=Latency(),
        quality=Quality(),
        streams=behaviour.crowd.step(now_s) if behaviour.crowd else [stream(number, now_s) for number in range(4)],
        disconnect_counts={"stream": sequence},
        counters=None if behaviour.name == "old" else count(),
        events=events,
    )


def schedule(behaviour: Behaviour) -> None:
    """The scheduler's process: telemetry and its own commands."""
    publisher, commands = bound(zmq.PUB, link.TELEMETRY_SOCKET), bound(zmq.ROUTER, link.SCHEDULER_SOCKET)
    policy, sequence = Policy(), 0
    while True:
        if behaviour.name != "silent" or sequence < 20:
            sequence += 1
            publisher.send(link.encode(telemetry(behaviour, sequence, policy)))
        if commands.poll((2 if behaviour.crowd else 1) * INTERVAL_S * 1000):
            *envelope, body = commands.recv_multipart()
            fields = policy.answer(link.decode_command(body))
            answer = reply(mode=policy.tunables.mode, revision=policy.revision, **fields)
            commands.send_multipart([*envelope, link.encode(answer)])


class Models(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_arguments) -> None:
        pass


def serve_http() -> None:
    server = http.server.HTTPServer((option("--host"), int(option("--port"))), Models)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def leave_things() -> None:
    """As SGLang does: a child by title, shared memory, empty files and sockets of the same kind of name."""
    descriptor, path = tempfile.mkstemp(prefix="tokenflow-test-", dir="/dev/shm")
    os.truncate(descriptor, mmap.PAGESIZE)
    kept.append(mmap.mmap(descriptor, mmap.PAGESIZE))
    with tempfile.NamedTemporaryFile(delete=False) as file:
        say(f"shared {path} temporary {file.name}")
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].bind(tempfile.mktemp())
    child = subprocess.Popen(["sglang::detokenizer", "600"], executable=shutil.which("sleep"))
    threading.Thread(target=child.wait, daemon=True).start()


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    behaviour = Behaviour(option("--script", "serve"))
    if behaviour.name == "exit":
        say("Traceback (most recent call last):\nValueError: the weights are not there")
        sys.exit(behaviour.number)
    if "--as-scheduler" in sys.argv:
        schedule(behaviour)
    if behaviour.name == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    say("[x] server_args={}")
    say("Multi-thread loading shards:  50% Completed | 1/2 [00:01<00:00,  1.17s/it]")
    say(f"settings {os.environ['TOKENFLOW_SETTINGS']} link {FOLDER}")
    if behaviour.name == "whole":
        leave_things()
    serve_http()
    if behaviour.name in ("no-plugin", "incompatible"):
        say("The server is fired up and ready to roll!")
    if behaviour.name not in ("no-plugin", "incompatible", "slow"):
        child = subprocess.Popen([sys.executable, __file__, "--as-scheduler", *sys.argv[1:]])
        threading.Thread(target=child.wait, daemon=True).start()
    if behaviour.name != "no-plugin":
        answer_frontend(behaviour)
    signal.pause()


if __name__ == "__main__":
    main()

"""Random kills, restarts, tunes and stops of daemon, engine and client while streams run on the real engine.

    python bench/chaos.py [--cycles 500] [--seed 1] [--limit-s S]

Each cycle does one thing, drawn with the seed, and then holds what must be true: no process of an engine that has
ended, one link folder for one engine, what was tuned is in force, and a status that tells the truth within
`--truth-s` (5 s). Streams may break only where an engine was killed, stopped or restarted; never through the death of
a daemon, through a tune or through another client. The daemon is started again when it dies, as a service manager
would. Ends with 1 where anything did not hold. A cycle takes 1 to 40 s; `--limit-s` ends early.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from rig import Rig

# Two layers of made-up weights: the same engine and the same processes, several times faster.
ENGINE = ("--load-format", "dummy", "--json-model-override-args", '{"num_hidden_layers": 2}')
ENGINE_ENDS = ("kill_scheduler", "kill_http", "stop", "restart")
WEIGHTS = {
    "kill_daemon": 30,
    "tune": 20,
    "tune_and_kill_daemon": 10,
    "kill_client": 15,
    "stop": 6,
    "restart": 6,
    "kill_scheduler": 7,
    "kill_http": 6,
}
START_LIMIT_S = 300.0
_SETTINGS = {
    "TOKENFLOW_ON_DAEMON_STOP": "keep",
    "TOKENFLOW_AUTOSTART": "true",
    "TOKENFLOW_RESTART_LIMIT_COUNT": "1000",
    "TOKENFLOW_RESTART_BACKOFF_S": "0.2",
    "TOKENFLOW_DRAIN_S": "1",
    "TOKENFLOW_METRICS_LISTEN": "",
}


class Chaos:
    """One place with a daemon, an engine and a client in it."""

    def __init__(self, rig: Rig, seed: int, truth_s: float, streams: int = 3, tokens: int = 60) -> None:
        self.problems: list[str] = []
        self.done: Counter[str] = Counter()
        self.truths_s: list[float] = []
        self._rig, self._random, self._truth_s = rig, random.Random(seed), truth_s
        self._load = (str(streams), str(tokens))
        self._cycle = 0
        self._tuned: dict[str, float] = {}
        self._upheavals: list[tuple[float, float]] = []  # when streams may break
        self._lines = rig.folder / "streams.jsonl"
        self._lines.touch()
        rig.environment |= _SETTINGS
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = str(probe.getsockname()[1])
        self._daemon = self._spawn_daemon()
        self._client: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        self._status()  # `tfctl start` would bring up a daemon of its own, which ends with its engine
        self._start_engine()
        self._spawn_client()
        self._holds("no stream has begun", lambda: bool(self._live_rows()), limit_s=60.0)

    def cycle(self) -> None:
        self._cycle += 1
        name = self._random.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0]
        self.run(name)
        time.sleep(self._random.uniform(0.1, 1.5))

    def run(self, name: str) -> None:
        """One action and what must hold after it."""
        self._wait_serving()
        before = self._status()["engine"]
        known = {before["pid"]} | {child.pid for child in psutil.Process(before["pid"]).children(recursive=True)}
        known = {psutil.Process(pid) for pid in known if psutil.pid_exists(pid)}
        began_s = time.monotonic()
        getattr(self, f"_{name}")(before)
        if name in ENGINE_ENDS:
            self._upheavals.append((began_s, time.monotonic()))
            self._tuned = {}
            self._rig.learn_shared_files()
            self._holds("processes of the old engine are left", lambda: not [p for p in known if is_alive(p)])
        self._holds("there is not one link folder", lambda: len(self._link_folders()) == 1)
        self._check_tunables()
        self.done[name] += 1

    def _kill_daemon(self, before: dict[str, Any]) -> None:
        self._daemon.kill()
        self._daemon.wait()
        self._daemon = self._spawn_daemon()
        self._truth("after the daemon's death", lambda engine: engine["pid"] == before["pid"] and is_up(engine))

    def _tune(self, _before: dict[str, Any]) -> None:
        value = round(self._random.uniform(1.0, 5.0), 3)
        done = self._rig.tfctl("tune", f"safety_factor={value}")
        if done.returncode != 0:
            self._complain(f"tune: {done.returncode} {done.stderr}")
        else:
            self._tuned["safety_factor"] = value

    def _tune_and_kill_daemon(self, before: dict[str, Any]) -> None:
        """A tune that has said that it is done is done, whatever happens to the daemon meanwhile."""
        value = round(self._random.uniform(1.0, 5.0), 3)
        command = [sys.executable, "-m", "tfctl.main", "tune", f"safety_factor={value}"]
        tune = subprocess.Popen(
            command, env=self._rig.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(self._random.uniform(0.0, 0.6))
        self._kill_daemon(before)
        if tune.wait(60) == 0:
            self._tuned["safety_factor"] = value
        else:
            self._tuned["safety_factor"] = self._in_force("safety_factor")  # either is right

    def _kill_client(self, _before: dict[str, Any]) -> None:
        assert self._client is not None
        self._client.kill()
        self._client.wait()
        time.sleep(0.2)
        self._holds("requests of a client that has gone are live", lambda: not self._live_rows(), limit_s=20.0)
        self._spawn_client()

    def _kill_scheduler(self, before: dict[str, Any]) -> None:
        [scheduler] = [p for p in psutil.Process(before["pid"]).children() if "scheduler" in "".join(p.cmdline())]
        self._kill_engine(before, scheduler.pid)

    def _kill_http(self, before: dict[str, Any]) -> None:
        self._kill_engine(before, before["pid"])

    def _kill_engine(self, before: dict[str, Any], pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self._truth("after the engine's death", lambda engine: engine["pid"] != before["pid"] or not is_up(engine))
        self._wait_serving()

    def _stop(self, _before: dict[str, Any]) -> None:
        done = self._rig.tfctl("stop")
        if done.returncode != 0:
            self._complain(f"stop: {done.returncode} {done.stderr}")
        self._truth("after a stop", lambda engine: engine["state"] == "stopped")
        self._holds("a link folder is left", lambda: not self._link_folders())
        self._start_engine()

    def _restart(self, _before: dict[str, Any]) -> None:
        done = self._rig.tfctl("restart")
        if done.returncode != 0:
            self._complain(f"restart: {done.returncode} {done.stderr}")
        self._truth("after a restart", is_up)

    def _start_engine(self) -> None:
        done = self._rig.tfctl("start", "demo-cpu", "--", "--port", self._port, *ENGINE)
        assert done.returncode == 0, f"{done.stderr}\n{self._rig.log()}"
        self._rig.learn_shared_files()

    def _spawn_daemon(self) -> "subprocess.Popen[bytes]":
        with (self._rig.folder / "daemon.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tokenflowd.main", "--log-format", "json"],
                env=self._rig.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _spawn_client(self) -> None:
        with self._lines.open("ab") as lines:
            self._client = subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "chaos_client.py"), *self._target(), *self._load],
                env=self._rig.environment,
                stdin=subprocess.DEVNULL,
                stdout=lines,
                start_new_session=True,
            )

    def _target(self) -> tuple[str, str]:
        engine = self._status()["engine"]
        return str(engine["url"]), str(engine["model"])

    def _status(self) -> dict[str, Any]:
        """As soon as the daemon answers."""
        from tfctl.client import Client
        from tokenflow.errors import TokenFlowError

        deadline_s = time.monotonic() + 30.0
        while True:
            try:
                document = Client(self._rig.runtime / "tokenflow/control.sock", 5.0).get("/v1/status", dict)
            except TokenFlowError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.05)
            else:
                return dict(document)

    def _live_rows(self) -> list[str]:
        return list(self._rig.rows())

    def _link_folders(self) -> list[Path]:
        return [path for path in (self._rig.runtime / "tokenflow").glob("link-*") if path.is_dir()]

    def _in_force(self, key: str) -> float:
        [row] = [row for row in self._rig.json("tune")["tunables"] if row["key"] == key]
        return float(row["value"])

    def _check_tunables(self) -> None:
        for key, value in self._tuned.items():
            if (found := self._in_force(key)) != value:
                self._complain(f"{key} was tuned to {value} and is {found}")

    def _truth(self, when: str, condition: Callable[[dict[str, Any]], bool]) -> None:
        """The status must come to say so within the limit."""
        began_s = time.monotonic()
        while not condition(engine := self._status()["engine"]):
            if time.monotonic() - began_s > 10 * self._truth_s:
                self._complain(f"{when} the status still says {engine['state']}, pid {engine['pid']}")
                return
            time.sleep(0.05)
        took_s = time.monotonic() - began_s
        self.truths_s.append(took_s)
        if took_s > self._truth_s:
            self._complain(f"{when} the status took {took_s:.1f} s to tell the truth")

    def _wait_serving(self) -> None:
        self._holds("the engine does not serve again", lambda: is_up(self._status()["engine"]), limit_s=START_LIMIT_S)

    def _holds(self, problem: str, condition: Callable[[], bool], limit_s: float = 15.0) -> None:
        deadline_s = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline_s:
                self._complain(problem)
                return
            time.sleep(0.1)

    def _complain(self, problem: str) -> None:
        self.problems.append(f"cycle {self._cycle}: {problem}")
        print(self.problems[-1], file=sys.stderr, flush=True)

    def end(self) -> tuple[int, int]:
        """Ends everything, and holds what the streams say against what was done.

        Returns how many streams were whole, and how many were cut by the end of their engine.
        """
        if self._client is not None:
            self._client.kill()
            self._client.wait()
        self._rig.tfctl("stop", "--daemon")
        self._daemon.wait(60)
        self._rig.assert_nothing_left()
        streams = [json.loads(line) for line in self._lines.read_text().splitlines() if line.endswith("}")]
        broken = [stream for stream in streams if stream["problem"] is not None]
        for stream in broken:
            if not self._is_excused(stream):
                self._complain(f"a stream was lost: {stream['problem']}")
        return len(streams) - len(broken), len(broken)

    def _is_excused(self, stream: dict[str, Any]) -> bool:
        return any(
            began_s <= stream["ended_s"] and stream["began_s"] <= ended_s for began_s, ended_s in self._upheavals
        )

    def abandon(self) -> None:
        """After a failure: nothing of ours stays."""
        for process in (self._client, self._daemon):
            if process is not None:
                process.kill()
                process.wait()
        self._rig.clear()


def is_up(engine: dict[str, Any]) -> bool:
    return engine["state"] in ("serving", "busy")


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def say_how_far(chaos: Chaos, took_s: float) -> None:
    """A line a few minutes, so that a run of hours can be followed and one that is cut short has said something."""
    count, most_s = sum(chaos.done.values()), max(chaos.truths_s, default=0.0)
    text = f"{count} cycles in {took_s:.0f} s, {len(chaos.problems)} problems, truth within {most_s:.2f} s"
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--truth-s", type=float, default=5.0)
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    options = parser.parse_args()
    chaos = Chaos(Rig(), options.seed, options.truth_s)
    began_s = time.monotonic()
    try:
        chaos.begin()
        while sum(chaos.done.values()) < options.cycles and time.monotonic() - began_s < options.limit_s:
            chaos.cycle()
            if sum(chaos.done.values()) % 20 == 0:
                say_how_far(chaos, time.monotonic() - began_s)
        whole_count, cut_count = chaos.end()
    finally:
        chaos.abandon()
    for name, count in sorted(chaos.done.items()):
        print(f"{count:5d}  {name}")
    truths_s = sorted(chaos.truths_s)
    took_s = time.monotonic() - began_s
    print(f"{sum(chaos.done.values())} cycles with seed {options.seed} in {took_s:.0f} s")
    print(f"{whole_count} whole streams, {cut_count} cut by the end of their engine")
    print(f"status told the truth within {truths_s[len(truths_s) // 2]:.2f} s (median), {truths_s[-1]:.2f} s (most)")
    print(f"{len(chaos.problems)} problems" if chaos.problems else "nothing was left, and nothing was lost")
    return 1 if chaos.problems else 0


if __name__ == "__main__":
    sys.exit(main())

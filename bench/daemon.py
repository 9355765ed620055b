"""What the daemon costs beside an idle engine and beside eight running streams, and how often telemetry comes.

python bench/daemon.py [--seconds 30]
"""

import argparse
import http.client
import json
import socket
import time

import psutil
from cycles import burst
from rig import Rig


def cpu_share(pid: int, seconds: float) -> float:
    """CPU seconds of a process per second of wall time."""
    process = psutil.Process(pid)
    begin, begin_s = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    end = process.cpu_times()
    return (end.user + end.system - begin.user - begin.system) / (time.monotonic() - begin_s)


def telemetry_hz(rig: Rig, seconds: float) -> float:
    """Changes of the engine's counters that a watcher of the control socket sees per second."""
    connection = http.client.HTTPConnection("localhost", timeout=seconds + 30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(rig.status()["daemon"]["socket"])
    connection.request("GET", "/v1/requests?watch=0.1")
    answer, ages, begin_s = connection.getresponse(), set(), time.monotonic()
    while time.monotonic() - begin_s < seconds:
        document = json.loads(answer.readline())
        ages.add(tuple(row["age_s"] for row in document["requests"]))
    connection.close()
    return len(ages) / (time.monotonic() - begin_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    seconds = parser.parse_args().seconds
    rig = Rig()
    try:
        rig.start()
        status = rig.status()
        daemon, engine = status["daemon"]["pid"], status["engine"]["pid"]
        time.sleep(3)
        idle = cpu_share(daemon, seconds)
        whole = [engine, *(child.pid for child in psutil.Process(engine).children(recursive=True))]
        engine_idle = sum(cpu_share(pid, 5.0) for pid in whole)
        thread = burst(rig)
        busy = cpu_share(daemon, 10.0)
        rate_hz = telemetry_hz(rig, 5.0)
        rig.tfctl("stop", "--daemon")
        thread.join(60)
    finally:
        rig.clear()
    print(f"daemon beside an idle engine      {idle * 100:6.2f} % of a core")
    print(f"idle engine, its three processes  {engine_idle * 100:6.2f} % of a core")
    print(f"daemon beside running streams     {busy * 100:6.2f} % of a core")
    print(f"fresh telemetry seen by a watcher {rate_hz:6.1f} a second")


if __name__ == "__main__":
    main()

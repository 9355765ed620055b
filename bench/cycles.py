"""Twenty starts and stops of the real engine, half of them with streams running: what is left, how long they take.

    python bench/cycles.py [--cycles 20]

Ends with 1 if any cycle leaves a process, a socket, a file of its own (shared memory included)
or a descriptor of the daemon behind.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import threading
import time

from rig import Rig

from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import Workload, plan_streams
from tokenflow.loadgen.run import LoadRun


def burst(rig: Rig) -> threading.Thread:
    """Streams that outlast the stop, so that it has something to cut."""
    workload = Workload(request_count=6, arrivals="burst:6", rates="6", output_tokens="fixed:500", seed=3)
    endpoint = Endpoint(url=rig.url, model=rig.model, extra_body={"ignore_eos": True})
    run = LoadRun(endpoint, plan_streams(workload))
    thread = threading.Thread(target=lambda: asyncio.run(run.execute()))
    thread.start()
    while run.recorders[0].token_count == 0 and thread.is_alive():
        time.sleep(0.05)
    return thread


def leftovers(rig: Rig) -> list[str]:
    """What one cycle should not have left: anything but logs and the daemon itself."""
    ours = [process for process in rig.processes() if "tokenflowd" not in " ".join(process.cmdline())]
    found = [f"process {process.pid} {process.name()}" for process in ours]
    found += [f"socket {path}" for path in rig.sockets() if path.name != "control.sock"]
    found += [f"file {path}" for path in sorted(rig.files_left())]
    files = (path for path in rig.folder.rglob("*") if path.is_file())
    files = (path for path in files if ".log" not in path.name and "flight" not in path.name)
    return found + [f"file {path}" for path in files if path.suffix not in (".lock", ".pid")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=20)
    cycles = parser.parse_args().cycles
    rig, problems, starts_s, stops_s, descriptors = Rig(), [], [], [], []
    daemon = start_daemon(rig)
    try:
        for cycle in range(cycles):
            began_s = time.monotonic()
            rig.start()
            starts_s.append(time.monotonic() - began_s)
            thread = burst(rig) if cycle % 2 else None
            began_s = time.monotonic()
            assert rig.tfctl("stop").returncode == 0
            stops_s.append(time.monotonic() - began_s)
            if thread is not None:
                thread.join(60)
            problems += [f"cycle {cycle}: {what}" for what in leftovers(rig)]
            descriptors.append(len(os.listdir(f"/proc/{daemon}/fd")))
            print(f"cycle {cycle + 1}/{cycles}: {starts_s[-1]:.1f} s up, {stops_s[-1]:.1f} s down", flush=True)
        rig.tfctl("stop", "--daemon")
        rig.assert_nothing_left()
    finally:
        rig.clear()
    if len(set(descriptors)) > 2 or max(descriptors) - min(descriptors) > 2:
        problems.append(f"descriptors of the daemon: {descriptors}")
    print(f"start {statistics.median(starts_s):.1f} s, stop {statistics.median(stops_s):.1f} s (medians of {cycles})")
    print("\n".join(problems) or f"{cycles} cycles left no process, socket, file or descriptor behind")
    return 1 if problems else 0


def start_daemon(rig: Rig) -> int:
    """A daemon that stays when its engine is stopped, unlike the one that `tfctl start` brings up."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenflowd.main"],
        env=rig.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while rig.tfctl("status").returncode != 3 or "not running" in rig.tfctl("status").stdout:
        time.sleep(0.2)
    return process.pid


if __name__ == "__main__":
    sys.exit(main())

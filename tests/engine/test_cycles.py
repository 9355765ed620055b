"""Start and stop, several times: nothing stays behind, and a stream that a stop cuts is told so."""

import asyncio
import os
import threading
from pathlib import Path

from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.run import LoadRun

CYCLES = 3


def folder_listing(rig) -> set[str]:
    """Files of ours that are not logs, which stay on purpose."""
    paths = (path for path in rig.folder.rglob("*") if path.is_file() or path.is_socket())
    return {str(path.relative_to(rig.folder)) for path in paths if ".log" not in path.name}


def descriptor_count(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_three_cycles_under_one_daemon_leave_nothing_behind(own_engine):
    daemon = own_engine.python("-c", "import tokenflowd")  # the import alone must leave nothing either
    assert daemon.returncode == 0
    listings, descriptors = [], []
    own_engine.start()
    for _ in range(CYCLES):
        document = own_engine.status()
        daemon_pid = document["daemon"]["pid"]
        descriptors.append(descriptor_count(daemon_pid))
        assert own_engine.tfctl("restart").returncode == 0
        assert own_engine.status()["daemon"]["pid"] == daemon_pid
        mapped = own_engine.learn_shared_files()
        assert mapped != set()
        assert own_engine.files_left() == mapped
        listings.append({name for name in folder_listing(own_engine) if "link" not in name})
    assert max(descriptors) - min(descriptors) <= 2, descriptors
    assert listings[0] == listings[-1]
    assert len([path for path in (own_engine.runtime / "tokenflow").iterdir() if path.is_dir()]) == 1
    assert own_engine.tfctl("stop").returncode == 0
    own_engine.assert_nothing_left()


def test_a_stream_that_a_stop_cuts_gets_an_error_event(own_engine):
    own_engine.start()
    plan = StreamPlan(index=0, arrival_s=0.0, prompt="Count to a thousand.", rate_tok_s=4.0, max_tokens=2000)
    endpoint = Endpoint(url=own_engine.url, model=own_engine.model, extra_body={"ignore_eos": True})
    run = LoadRun(endpoint, [plan])
    thread = threading.Thread(target=lambda: asyncio.run(run.execute()))
    thread.start()
    try:
        while run.recorders[0].token_count == 0 and thread.is_alive():
            thread.join(0.05)
        assert own_engine.tfctl("stop").returncode == 0
    finally:
        thread.join(60)
    [stream] = run.result().streams
    assert 0 < stream.token_count < 2000
    assert not stream.is_complete
    assert stream.error is not None
    assert "stop" in stream.error
    own_engine.assert_nothing_left()
    assert Path(own_engine.state).exists()

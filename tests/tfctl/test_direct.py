"""`tfctl mode --direct`: the engine's link without a daemon."""

import threading

import msgspec
import pytest
import zmq

from tokenflow import link
from tokenflow.locations import engine_record, user_socket
from tokenflow.policy.states import Mode
from tokenflow.wire import PluginState


class LinkEnd:
    """A scheduler's end of the link, in a thread."""

    def __init__(self, folder, refusal: str | None = None) -> None:
        folder.mkdir(mode=0o700)
        self.mode, self.revision, self.who = Mode.ENFORCE, 4, []
        self._refusal = refusal
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.bind(f"ipc://{folder / link.SCHEDULER_SOCKET}")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            if not self._socket.poll(20):
                continue
            *envelope, body = self._socket.recv_multipart()
            command, error = link.decode_command(body), None
            if isinstance(command, link.SetMode):
                self.who.append(command.who)
                if self._refusal is None:
                    self.mode, self.revision = command.mode, self.revision + 1
                error = self._refusal
            reply = link.Reply(plugin_version="1", pid=1, plugin=PluginState.ACTIVE, mode=self.mode)
            reply.revision, reply.error_code, reply.error_message = self.revision, error, error and "not possible"
            self._socket.send_multipart([*envelope, link.encode(reply)])

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close(linger=0)
        self._context.term()


def write_record(folder) -> None:
    path = engine_record(user_socket())
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"pid": 1, "start_ticks": 1, "group": 1, "link_folder": str(folder), "profile": "mine", "daemon_pid": 2}
    path.write_bytes(msgspec.json.encode(record))


@pytest.fixture
def engine(home):
    ends = []

    def start(refusal: str | None = None) -> LinkEnd:
        folder = home / "link-1"
        ends.append(LinkEnd(folder, refusal))
        write_record(folder)
        return ends[0]

    yield start
    for end in ends:
        end.close()


def test_the_mode_is_set_and_read_back_without_a_daemon(tfctl, engine):
    end = engine()
    assert tfctl("mode", "--direct").out == "enforce\n"
    outcome = tfctl("mode", "off", "--direct")
    assert (outcome.code, outcome.out, outcome.err) == (0, "off\n", "")
    assert end.who[0].startswith("uid=")
    document = msgspec.json.decode(tfctl("mode", "--direct", "--json").out)
    assert (document["schema"], document["mode"], document["revision"]) == ("tokenflow.mode/1", "off", 5)


def test_what_the_engine_refuses_is_told(tfctl, engine):
    engine("unsupported")
    outcome = tfctl("mode", "enforce", "--direct")
    assert (outcome.code, outcome.err.splitlines()[0]) == (1, "error: not possible")


def test_without_a_record_it_says_where_it_looked(tfctl):
    outcome = tfctl("mode", "off", "--direct")
    assert outcome.code == 1
    assert "engine.json" in outcome.err
    assert "--socket" in outcome.err


def test_a_link_that_nobody_answers_on_times_out(tfctl, home):
    folder = home / "link-1"
    folder.mkdir()
    (folder / link.SCHEDULER_SOCKET).touch()
    write_record(folder)
    outcome = tfctl("--timeout", "0.2", "mode", "off", "--direct")
    assert outcome.code == 75
    assert "tfctl stop" in outcome.err


def test_another_socket_has_another_record(tfctl, engine, home):
    engine()
    assert tfctl("--socket", str(home / "other.sock"), "mode", "--direct").code == 1

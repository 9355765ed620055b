"""Recordings: what is written comes back, whatever becomes of the file's end."""

import json
from types import SimpleNamespace

import pytest
from document_samples import request_rows, status_document
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenflow.errors import ConfigurationError, OperationError, UsageError
from tokenflow.wire import EngineState, RequestsDocument
from tokenflow_tui.clock import Clock
from tokenflow_tui.history import History
from tokenflow_tui.moment import Moment, pack
from tokenflow_tui.player import Player
from tokenflow_tui.recording import MAGIC, Recorder, read


def moment(at_s):
    rows = request_rows()
    return Moment(
        at_s=at_s,
        status=status_document(EngineState.SERVING),
        requests=RequestsDocument(requests=rows, total_count=len(rows)),
    )


def recorded(path, count=5, **options):
    recorder = Recorder(path, **options)
    for index in range(count):
        recorder.take(pack(moment(100.0 + index)))
    recorder.close()
    return recorder


def test_what_was_seen_comes_back(folder):
    recorded(folder / "a.tfrec")
    recording = read(folder / "a.tfrec")
    assert [packed.at_s for packed in recording.moments] == [100.0, 101.0, 102.0, 103.0, 104.0]
    assert recording.moments[2].moment() == moment(102.0)
    assert recording.problem is None
    assert recording.info.version


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_file_that_ends_anywhere_is_read_up_to_there(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cut")
    recorded(folder / "whole")
    whole = (folder / "whole").read_bytes()
    head = len(MAGIC) + whole[len(MAGIC) :].index(b"\n") + 1
    cut = data.draw(st.integers(head + 1, len(whole)))
    (folder / "cut").write_bytes(whole[:cut])
    try:
        recording = read(folder / "cut")
    except ConfigurationError:  # not even one moment is whole
        return
    assert recording.moments == read(folder / "whole").moments[: len(recording.moments)]
    assert (recording.problem is None) == (len(recording.moments) == 5 or cut in _ends(whole, head))


def _ends(whole, head):
    ends, at = set(), head
    while at < len(whole):
        at += 8 + int.from_bytes(whole[at : at + 4], "little")
        ends.add(at)
    return ends


@given(st.integers(0, 2**16), st.integers(1, 255))
@settings(max_examples=60, deadline=None)
def test_a_flipped_byte_is_noticed_or_lies_in_the_head(tmp_path_factory, at, flip):
    folder = tmp_path_factory.mktemp("flip")
    recorded(folder / "whole")
    content = bytearray((folder / "whole").read_bytes())
    whole = read(folder / "whole").moments
    content[at % len(content)] ^= flip
    (folder / "bad").write_bytes(content)
    try:
        recording = read(folder / "bad")
    except ConfigurationError:
        return
    assert recording.moments == whole[: len(recording.moments)]
    assert len(recording.moments) == 5 or "damaged after" in recording.problem


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no recording"),
        (b"hello\n", "no recording"),
        (b"tokenflow.recording/9\n{}\n", "another version: tokenflow.recording/9"),
        (MAGIC + b"what\n", "damaged head"),
        (MAGIC + b"{}\n", "holds no moment"),
    ],
)
def test_what_is_no_recording_is_refused_in_words(folder, content, words):
    (folder / "a").write_bytes(content)
    with pytest.raises(ConfigurationError, match=words) as caught:
        read(folder / "a")
    assert caught.value.hint


def test_a_file_that_is_not_there(folder):
    with pytest.raises(ConfigurationError, match="No such file"):
        read(folder / "nosuch")


def test_nothing_is_written_over(folder):
    recorded(folder / "a")
    with pytest.raises(UsageError, match="is there already"):
        Recorder(folder / "a")
    with pytest.raises(OperationError, match="cannot write"):
        Recorder(folder / "nosuch" / "a")


def test_it_is_bounded_and_says_so(folder):
    one = len(pack(moment(1.0)).body)
    recorder = recorded(folder / "a", 50, max_bytes=10 * one)
    assert "are full" in recorder.problem
    assert (folder / "a").stat().st_size <= 10 * one
    assert 5 < len(read(folder / "a").moments) < 10


def test_a_full_disk_ends_the_recording_and_not_the_view(folder):
    recorder = Recorder(folder / "a")
    recorder._file.close()
    recorder._file = SimpleNamespace(write=_fail, close=_fail)
    recorder.take(pack(moment(1.0)))
    recorder.take(pack(moment(2.0)))
    assert "No space left" in recorder.problem


def _fail(*_):
    raise OSError(28, "No space left on device")


def player(count=11):
    history = History()
    for index in range(count):
        history.append(moment(100.0 + index))
    return Player(Clock(history))


def test_a_player_goes_on_with_time_and_stops_at_the_end():
    played = player()
    assert played.clock.index == 0
    assert played.advance(2.5)
    assert played.clock.index == 2
    played.change_speed(2.0)
    played.advance(1.0)
    assert played.clock.index == 4
    assert played.word == "replay x2"
    played.advance(100.0)
    assert (played.clock.index, played.is_playing) == (10, False)
    assert not played.advance(1.0)
    played.toggle()
    assert (played.clock.index, played.is_playing) == (0, True)


def test_steps_stay_within_the_recording():
    played = player()
    played.step(-60.0)
    assert (played.clock.index, played.is_playing) == (0, False)
    played.step(5.0)
    assert played.clock.index == 5
    played.step(600.0)
    assert played.clock.index == 10
    assert not played.clock.is_live


def test_top_once_prints_the_last_moment_of_a_recording(folder, capfd):
    from tfctl.main import run

    path = folder / "a"
    recorded(path)
    assert run(["top", "--replay", str(path), "--once"]) == 0
    assert "SmolLM2-135M-Instruct" in capfd.readouterr().out
    assert run(["top", "--replay", str(path), "--once", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["schema"] == "tokenflow.top/1"
    assert run(["top", "--replay", str(folder / "nosuch"), "--once"]) == 78
    assert run(["top", "--replay", str(path), "--record", str(folder / "b")]) == 2
    assert "Traceback" not in capfd.readouterr().err

"""What one look after the other brings, of events above all: none twice, none left out."""

import document_samples
import fake_daemon
import pytest

from tokenflow_tui.feed import Feed


@pytest.fixture
def events(monkeypatch):
    """The daemon's ring; tests add to it."""
    rows = document_samples.event_rows()
    monkeypatch.setattr(fake_daemon, "event_rows", lambda: rows)
    return rows


def add(events, count):
    last = events[-1]
    for _ in range(count):
        events.append(type(last)(sequence=events[-1].sequence + 1, at=last.at, kind=last.kind))


def sequences(moment):
    return [event.sequence for event in moment.events]


def test_each_event_comes_once(daemon, events):
    feed = Feed(daemon.path)
    assert sequences(feed.read()) == [1, 2, 3, 4, 5]
    assert sequences(feed.read()) == []
    add(events, 2)
    assert sequences(feed.read()) == [6, 7]


def test_many_events_between_two_looks_are_not_lost(daemon, events):
    feed = Feed(daemon.path)
    feed.read()
    add(events, 500)
    assert sequences(feed.read()) == list(range(6, 506))
    assert sequences(feed.read()) == []


def test_a_daemon_that_was_restarted_counts_anew(daemon, events):
    feed = Feed(daemon.path)
    feed.read()
    answer = daemon.status

    def restarted():
        document = answer()
        document.daemon.pid += 1
        return document

    daemon.status = restarted
    del events[2:]
    assert sequences(feed.read()) == [1, 2]


def test_tunables_are_read_once_for_each_revision(daemon):
    feed = Feed(daemon.path)
    assert feed.read().tunables is not None
    assert feed.read().tunables is None
    answer = daemon.status

    def tuned():
        document = answer()
        document.policy.revision += 1
        return document

    daemon.status = tuned
    assert feed.read().tunables is not None
    assert feed.read().tunables is None


def test_no_daemon(folder):
    feed = Feed(folder / "nosuch.sock", explicit=folder / "nosuch.sock")
    for _ in range(2):
        moment = feed.read()
        assert moment.trouble == "daemon gone, trying again"
        assert moment.trouble_hint == f"start it: tfctl --socket {folder}/nosuch.sock start"

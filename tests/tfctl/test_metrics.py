"""`tfctl metrics`: the text as the daemon gives it, and a file that is replaced as a whole."""

import json
import os
import stat

from fake_daemon import METRICS_TEXT


def test_print_is_the_daemon_s_text(tfctl, daemon):
    assert tfctl("metrics").out == METRICS_TEXT
    assert tfctl("metrics", "print").out == METRICS_TEXT


def test_a_file_is_replaced_as_a_whole_and_others_may_read_it(tfctl, daemon, home):
    path = home / "tokenflow.prom"
    path.write_text("old")
    os.chmod(path, 0o600)
    outcome = tfctl("metrics", "write", str(path))
    assert (outcome.code, outcome.out) == (0, "")
    assert path.read_text() == METRICS_TEXT
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [entry.name for entry in home.iterdir() if ".prom" in entry.name] == ["tokenflow.prom"]


def test_a_file_of_a_daemon_that_is_gone_keeps_its_contents_and_its_date(tfctl, home):
    path = home / "tokenflow.prom"
    path.write_text("old")
    os.utime(path, (1, 1))
    assert tfctl("metrics", "write", str(path)).code == 69
    assert (path.read_text(), path.stat().st_mtime) == ("old", 1.0)


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tfctl, daemon, home):
    folder = home / "tokenflow.prom"
    folder.mkdir()
    outcome = tfctl("metrics", "write", str(folder))
    assert outcome.code == 1
    assert "hint:  name a file" in outcome.err
    assert not [entry for entry in home.iterdir() if entry.name.startswith(".tokenflow")]


def test_json_says_where_it_went(tfctl, daemon, home):
    path = home / "tokenflow.prom"
    document = json.loads(tfctl("metrics", "write", str(path), "--json").out)
    assert (document["schema"], document["path"], document["text"]) == ("tokenflow.metrics/1", str(path), METRICS_TEXT)

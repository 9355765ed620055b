"""Sockets of schedulers that come one after the other."""

from tokenflow import link
from tokenflow.sglang import scheduler_sockets
from tokenflow.sglang.scheduler_sockets import SchedulerSockets


def test_each_is_told_once_also_one_that_comes_late(tmp_path, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(scheduler_sockets.time, "monotonic", lambda: now_s[0])
    sockets = SchedulerSockets(tmp_path, link.DELIVERY_SOCKET)
    paths = {index: tmp_path / link.own_socket(link.DELIVERY_SOCKET, index) for index in range(3)}
    for index in (0, 2):
        paths[index].touch()
    assert sockets.new() == {0: paths[0], 2: paths[2]}
    paths[1].touch()
    assert sockets.new() == {}, "a second has not passed"
    now_s[0] += scheduler_sockets.LOOK_S
    assert sockets.new() == {1: paths[1]}
    now_s[0] += scheduler_sockets.LOOK_S
    assert sockets.new() == {}

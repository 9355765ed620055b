"""Roles: the pure function, the kernel's word for it, and what each may do over a real socket."""

import asyncio
import grp
import json
import os
import pwd
import socket
import stat
from pathlib import Path

import pytest
from daemon_rig import Rig, run_daemon
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tokenflowd.identity import Peer, Role, RoleGroups, peer_of, role_needed, role_of
from tokenflowd.routes import engine, events, hold, logs, metrics, mode, requests, state, tunables

SUBJECTS = (state, engine, logs, mode, events, hold, requests, tunables, metrics)
ROUTES = [route for subject in SUBJECTS for route in subject.ROUTES]
GROUPS = st.builds(RoleGroups, st.none() | st.integers(1, 9), st.none() | st.integers(1, 9))
PEERS = st.builds(Peer, st.integers(1, 2**22), st.integers(0, 9), st.frozensets(st.integers(1, 9)))

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")


@given(PEERS, st.integers(0, 9), GROUPS)
def test_roles(peer, own_uid, groups):
    role = role_of(peer, own_uid, groups)
    is_admin = peer.uid in (0, own_uid) or groups.admin in peer.groups
    assert (role is Role.ADMIN) == is_admin
    if not is_admin:
        assert (role is Role.OPERATOR) == (groups.operator in peer.groups)


@given(PEERS, st.integers(1, 9))
def test_without_such_groups_nobody_else_may_change_anything(peer, own_uid):
    expected = Role.ADMIN if peer.uid in (0, own_uid) else Role.VIEWER
    assert role_of(peer, own_uid, RoleGroups()) is expected


@given(PEERS, GROUPS, st.frozensets(st.integers(1, 9)))
def test_a_further_group_never_takes_a_role_away(peer, groups, more):
    richer = Peer(peer.pid, peer.uid, peer.groups | more)
    assert role_of(richer, 5, groups) >= role_of(peer, 5, groups)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_whatever_may_change_something_takes_more_than_a_viewer(route):
    assert (role_needed(route.method, route.path) is Role.VIEWER) == (route.method == "GET")


def test_what_nobody_knows_takes_an_operator():
    assert role_needed("DELETE", "/v1/of/tomorrow") is Role.OPERATOR
    assert role_needed("POST", "/v1/shutdown") is Role.ADMIN


def test_the_kernel_says_who_is_at_the_other_end():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = peer_of(ours)
    assert (peer.pid, peer.uid) == (os.getpid(), os.getuid())
    assert peer.groups == {os.getgid(), *os.getgroups()}


class Stranger:
    """Another user, of the test's choice of groups, in a process of his own for each request."""

    def __init__(self, socket_path: Path, uid: int, gid: int, groups: list[int]) -> None:
        self._path = str(socket_path)
        self._who = uid, gid, groups

    def ask(self, method: str, path: str, body: str = "{}") -> tuple[int, dict]:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:  # nothing of asyncio's is touched here
            os.close(reader)
            self._as_stranger(method, path, body, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as answer:
            text = answer.read()
        os.waitpid(pid, 0)
        head, _, content = text.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(content)

    def _as_stranger(self, method: str, path: str, body: str, writer: int) -> None:
        try:
            uid, gid, groups = self._who
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(self._path)
                head = (
                    f"{method} {path} HTTP/1.1\r\nHost: d\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
                )
                connection.sendall((head + body).encode())
                while data := connection.recv(65536):
                    os.write(writer, data)
        except OSError as error:
            os.write(writer, f"HTTP/1.1 0 x\r\n\r\n{json.dumps({'errno': error.errno})}".encode())
        finally:
            os._exit(0)


@pytest.fixture
def nobody() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody")


@pytest.fixture
def three_groups() -> tuple[grp.struct_group, ...]:
    """For the socket, operators and admins: any that there are, and none of nobody's or ours."""
    taken = {0, pwd.getpwnam("nobody").pw_gid, *os.getgroups()}
    return tuple(group for group in grp.getgrall() if group.gr_gid not in taken)[:3]


@pytest.fixture
def open_home(home: Path) -> Path:
    """Others may come as far as the socket."""
    home.chmod(0o711)
    (home / "runtime_dir").chmod(0o711)
    return home


async def of_daemon(rig: Rig, groups, nobody, *member_of: int) -> Stranger:
    folder = rig.daemon.paths.socket.parent
    folder.chmod(0o711)
    return Stranger(rig.daemon.paths.socket, nobody.pw_uid, nobody.pw_gid, [groups[0].gr_gid, *member_of])


def settings_of(groups) -> dict[str, str]:
    return {"socket_group": groups[0].gr_name, "operator_group": groups[1].gr_name, "admin_group": groups[2].gr_name}


async def in_thread(function, *arguments):
    return await asyncio.to_thread(function, *arguments)


@needs_root
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
class TestStrangers:
    async def test_a_viewer_looks_and_cannot_tune(self, open_home, nobody, three_groups):
        async with run_daemon(**settings_of(three_groups)) as rig:
            viewer = await of_daemon(rig, three_groups, nobody)
            assert stat.S_IMODE(rig.daemon.paths.socket.stat().st_mode) == 0o660
            for path in ("/v1", "/v1/status", "/v1/requests", "/v1/events", "/v1/tunables", "/v1/mode", "/v1/logs?n=1"):
                assert (await in_thread(viewer.ask, "GET", path))[0] == 200 or "logs" in path
            await rig.client.start()
            for method, path, body in (
                ("PATCH", "/v1/tunables", '{"changes": {"quantum_s": 2}}'),
                ("PUT", "/v1/mode", '{"mode": "off"}'),
                ("POST", "/v1/engine/stop", "{}"),
                ("POST", "/v1/requests/rid-1/pause", "{}"),
                ("POST", "/v1/shutdown", "{}"),
                ("DELETE", "/v1/status", "{}"),
            ):
                status, document = await in_thread(viewer.ask, method, path, body)
                assert (status, document["error"]["code"]) == (403, "permission_denied"), path
            assert (
                f"usermod -aG {three_groups[1].gr_name} "
                in (await in_thread(viewer.ask, "PATCH", "/v1/tunables", "{}"))[1]["error"]["hint"]
            )
            assert (await rig.client.get("/v1/tunables"))["revision"] == 0
            assert (await rig.client.get("/v1/status"))["engine"]["state"] == "serving"

    async def test_an_operator_tunes_and_does_not_end_the_daemon(self, open_home, nobody, three_groups):
        async with run_daemon(**settings_of(three_groups)) as rig:
            operator = await of_daemon(rig, three_groups, nobody, three_groups[1].gr_gid)
            await rig.client.start()
            with capture_logs() as lines:
                status, document = await in_thread(
                    operator.ask, "PATCH", "/v1/tunables", '{"changes": {"quantum_s": 2.5}}'
                )
                assert (status, document["revision"]) == (200, 1)
                for path, body in (("/v1/shutdown", "{}"), ("/v1/engine/stop", '{"daemon": true}')):
                    assert (await in_thread(operator.ask, "POST", path, body))[0] == 403
            audit = [line for line in lines if line["event"] == "audit"]
            assert [line["outcome"] for line in audit] == ["done", "permission_denied", "permission_denied"]
            first = audit[0]
            assert (first["uid"], first["role"], first["request"]) == (nobody.pw_uid, "operator", "PATCH /v1/tunables")
            assert first["pid"] != os.getpid()
            assert (first["what"], first["old"], first["new"]) == ("tunables", {"quantum_s": 1.0}, {"quantum_s": 2.5})
            assert (await rig.client.get("/v1/status"))["engine"]["state"] == "serving"

    async def test_an_admin_ends_the_daemon(self, open_home, nobody, three_groups):
        async with run_daemon(**settings_of(three_groups)) as rig:
            admin = await of_daemon(rig, three_groups, nobody, three_groups[2].gr_gid)
            assert (await in_thread(admin.ask, "POST", "/v1/shutdown"))[0] == 202
            await rig.ended()

    async def test_who_is_not_of_the_socket_s_group_is_not_let_in(self, open_home, nobody, three_groups):
        async with run_daemon(**settings_of(three_groups)) as rig:
            await of_daemon(rig, three_groups, nobody)
            outsider = Stranger(rig.daemon.paths.socket, nobody.pw_uid, nobody.pw_gid, [])
            assert await in_thread(outsider.ask, "GET", "/v1") == (0, {"errno": 13})

    async def test_somebody_of_a_thousand_groups(self, open_home, nobody, three_groups):
        async with run_daemon(**settings_of(three_groups)) as rig:
            many = range(70_000, 71_000)
            operator = await of_daemon(rig, three_groups, nobody, *many, three_groups[1].gr_gid)
            status, document = await in_thread(operator.ask, "PUT", "/v1/mode", '{"mode": "off"}')
            assert (status, document["error"]["code"]) == (409, "conflict"), "let in, and no engine serves"


async def test_every_mutation_leaves_one_line_and_looking_none(rig: Rig):
    with capture_logs() as lines:
        await rig.client.start()
        await rig.client.get("/v1/status")
        await rig.client.ask("PUT", "/v1/mode", {"mode": "off"})
        await rig.client.ask("PUT", "/v1/mode", {"mode": "loud"})
        await rig.client.ask("POST", "/v1/requests/rid-1/pause")
        await rig.client.ask("POST", "/v1/nosuch")
        await rig.client.stop()
    audit = [line for line in lines if line["event"] == "audit"]
    told = [(line["request"], line["outcome"], line.get("what"), line.get("old"), line.get("new")) for line in audit]
    assert told == [
        ("POST /v1/engine/start", "done", "engine", None, "scripted"),
        ("PUT /v1/mode", "done", "mode", "observe", "off"),
        ("PUT /v1/mode", "usage", None, None, None),
        ("POST /v1/requests/{rid}/pause", "done", "rid-1", None, "held"),
        ("POST /v1/nosuch", "404", None, None, None),
        ("POST /v1/engine/stop", "done", "engine", "scripted", None),
    ]
    assert {(line["uid"], line["pid"], line["role"]) for line in audit} == {(os.getuid(), os.getpid(), "admin")}

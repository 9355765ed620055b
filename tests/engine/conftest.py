"""The real daemon and the real engine on the CPU, brought up by tfctl as a user would and taken down again.

`engine` is shared by all tests that leave it as it is: it starts once. `own_engine` is for tests that kill, stop or
restart an engine: they run last, one engine at a time, and the shared one is taken down before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engine_rig import Rig

_RIGS = pytest.StashKey[list[str]]()


class Engines:
    """At most one engine at a time: two would share the same few cores and time each other out."""

    def __init__(self, descriptions: list[str]) -> None:
        self._descriptions = descriptions
        self._shared: Rig | None = None

    def shared(self) -> Rig:
        if self._shared is None:
            rig = Rig()
            try:
                rig.start()
            except BaseException:
                rig.clear()
                raise
            self._shared = rig
            self._descriptions.append(rig.describe())
        return self._shared

    @contextmanager
    def of_a_module(self, *arguments: str, **environment: str) -> Iterator[Rig]:
        """An engine for the tests of one file, with these arguments and variables; the shared one is taken down."""
        self.take_down()
        rig = Rig()
        rig.environment.update(environment)
        try:
            rig.start(*arguments)
            yield rig
            rig.stop()
            rig.assert_nothing_left()
        finally:
            rig.clear()

    def take_down(self) -> None:
        rig, self._shared = self._shared, None
        if rig is None:
            return
        try:
            rig.stop()
            rig.assert_nothing_left()
        finally:
            rig.clear()


def pytest_configure(config: pytest.Config) -> None:
    config.stash.setdefault(_RIGS, [])


@pytest.fixture(scope="session")
def _engines(request: pytest.FixtureRequest) -> Iterator[Engines]:
    engines = Engines(request.config.stash.setdefault(_RIGS, []))
    yield engines
    engines.take_down()


@pytest.fixture
def engine(_engines: Engines) -> Rig:
    """A serving engine under the profile demo-cpu, shared: leave it as you found it."""
    return _engines.shared()


@pytest.fixture
def own_engine(_engines: Engines) -> Iterator[Rig]:
    """A place for an engine of the test's own, nothing started in it. Whatever is left in it is cleared away."""
    _engines.take_down()
    rig = Rig()
    yield rig
    rig.clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is in this folder; tests with an engine of their own come last, so that the shared one starts once."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.engine)
    items.sort(key=lambda item: "own_engine" in getattr(item, "fixturenames", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Names the engine and the tests that ran on it."""
    names = sorted(
        report.nodeid.removeprefix("tests/engine/")
        for report in terminalreporter.getreports("passed")
        if report.when == "call" and "tests/engine/" in report.nodeid
    )
    if not names:
        return
    terminalreporter.section("real engine")
    for description in config.stash.get(_RIGS, []):
        terminalreporter.line(description)
    terminalreporter.line(f"{len(names)} tests passed on the real engine:")
    for name in names:
        terminalreporter.line(f"  {name}")

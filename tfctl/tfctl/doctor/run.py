"""All checks in their order: what needs nothing first, so that it works with the daemon down."""

from collections.abc import Callable

from tfctl.doctor import gpu, host, installation, link, running
from tfctl.doctor.answer import skipped
from tfctl.host_documents import Check
from tfctl.session import Session
from tokenflow.locations import cache_folder, user_state_folder
from tokenflow.setup.host import has_gpu
from tokenflow.wire import EngineState, StatusDocument

DEFAULT_PROFILE = "demo-cpu"


def run(session: Session, url: str | None) -> list[Check]:
    """A check that breaks is skipped, with what broke it; the others are made all the same."""
    daemon, status = running.find_daemon(session)
    is_there = status is not None and status.engine.state is not EngineState.STOPPED
    profile = (status.engine.profile if status is not None else None) or DEFAULT_PROFILE
    own_url = status.engine.url if status is not None and is_there else None
    with_gpu = has_gpu()
    looks: list[tuple[str, Callable[[], Check | list[Check]]]] = [
        ("memory", host.memory),
        ("memlock", lambda: host.locked_memory(with_gpu)),
        ("pinned", host.pinned_probe),
        ("shm", host.shared_memory),
        ("files", host.open_files),
        ("hugepages", host.huge_pages),
        ("clock", host.clock),
        ("state folder", lambda: host.disk("state folder", user_state_folder())),
        ("cache folder", lambda: host.disk("cache folder", cache_folder())),
        ("gpu", lambda: gpu.checks(with_gpu)),
        ("bandwidth", lambda: link.checks(with_gpu, profile, status)),
        ("engine", lambda: installation.packages(installation.device_of(profile))),
        ("profiles", installation.profiles),
        ("settings", installation.settings),
        ("host pool", lambda: installation.host_pool(profile)),
        ("port", lambda: installation.port(profile, own_url)),
        ("service", installation.units),
        ("runtime folder", installation.runtime_folder),
        ("daemon", lambda: daemon),
        ("engine state", lambda: running.engine(status)),
    ]
    if url is not None:
        looks.append(("url", lambda: _proxy(url, status, own_url)))
    found: list[Check] = []
    for name, look in looks:
        found += _made(name, look)
    return found


def _proxy(url: str, status: StatusDocument | None, own_url: str | None) -> list[Check]:
    from tfctl.doctor import proxy

    return proxy.check(url, own_url, status.engine.model if status is not None and own_url else None)


def _made(name: str, look: Callable[[], Check | list[Check]]) -> list[Check]:
    try:
        answer = look()
    except Exception as error:  # noqa: BLE001 - one broken check must not hide the others
        return [skipped(name, f"the check broke: {type(error).__name__}: {error}", "report it: tfctl bugreport")]
    return answer if isinstance(answer, list) else [answer]

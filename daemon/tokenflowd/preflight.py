"""What is checked before an engine is started. Each check ends in one clear error, and nothing is left behind."""

import asyncio
import errno
import socket
from collections.abc import Callable
from pathlib import Path

from tokenflow.errors import ConfigurationError, PortInUseError
from tokenflowd import key_files, plan
from tokenflowd.plan import EnginePlan
from tokenflowd.profiles.schema import DEMO_MODEL

Report = Callable[[str, float | None], None]
"""Takes what is being done and how far it is (0 to 1, or None where that is not known)."""
_NOT_OUR_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


async def check(draft: EnginePlan, report: Report, *, is_engine_ours: bool) -> EnginePlan:
    """The final plan: model folder and port settled. Raises ConfigurationError and its kinds.

    `is_engine_ours` False: another command runs in SGLang's place, so packages and model are its own business.
    """
    key_files.check(draft.profile.engine)
    await check_port_free(draft)  # first: it is quick, and the demo model may take a minute
    model_path = await check_packages_and_model(draft, report) if is_engine_ours else None
    port = draft.port or await asyncio.to_thread(free_port, draft.host, draft.profile.name)
    return plan.make(draft.profile, list(draft.extra_arguments), model_path, port)


async def check_packages_and_model(draft: EnginePlan, report: Report) -> str | None:
    """The demo model's folder where it is the one that is meant. Works beside a running engine."""
    report("checking the engine's packages", None)
    await asyncio.to_thread(_check_packages, draft.device)
    loop = asyncio.get_running_loop()

    def report_from_thread(text: str, ratio: float | None) -> None:
        loop.call_soon_threadsafe(report, text, ratio)

    return await asyncio.to_thread(_find_model, draft.model_path, report_from_thread)


def _check_packages(device: str) -> None:
    from tokenflow.setup import packages

    packages.check_torch_build(device)


def _find_model(path: str, report: Report) -> str | None:
    from tokenflow.setup import model

    if path == DEMO_MODEL:
        return str(model.ensure_demo_model(report))
    report("checking the model folder", None)
    model.check_model_folder(Path(path))
    return None


async def check_port_free(draft: EnginePlan) -> None:
    if draft.port:
        await asyncio.to_thread(_bind, draft.host, draft.port, draft.profile.name)


def free_port(host: str, profile_name: str) -> int:
    """A port that nobody listens on. Somebody else may take it before the engine does; the engine says so then."""
    return _bind(host, 0, profile_name)


def _bind(host: str, port: int, profile_name: str) -> int:
    """Listens for a moment, as the engine will: with SO_REUSEADDR, so that closed connections of an engine that has
    just been stopped (TIME_WAIT) do not count. A port that somebody listens on is refused all the same."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
            return int(probe.getsockname()[1])
    except socket.gaierror as error:
        raise ConfigurationError(
            f"cannot listen on {host}: {error.strerror}", hint="correct `host` in the profile", field="host"
        ) from error
    except PermissionError as error:
        raise ConfigurationError(
            f"may not listen on {host}:{port}: {error.strerror}",
            hint=f"tfctl start {profile_name} -- --port 30001",
            field="port",
        ) from error
    except OSError as error:
        if error.errno in _NOT_OUR_ADDRESS:
            raise ConfigurationError(
                f"cannot listen on {host}: {error.strerror}; it is no address of this machine",
                hint=f"tfctl start {profile_name} -- --host 127.0.0.1; or correct `host` in the profile",
                field="host",
            ) from error
        raise PortInUseError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint=f"tfctl start {profile_name} -- --port {other_port(port)}",
            field="port",
        ) from error


def other_port(port: int) -> int:
    return port + 1 if port < 65535 else port - 1

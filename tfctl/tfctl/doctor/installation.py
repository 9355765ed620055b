"""What is installed here and how it is set up: packages, profiles, settings, units, folders."""

import os
import socket
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

from tfctl import service
from tfctl.doctor.answer import failed, passed, skipped, warned
from tfctl.host_documents import Check, FileState
from tfctl.profiles import find_faults, find_profiles, read_profile
from tokenflow.errors import TokenFlowError
from tokenflow.locations import settings_files, user_runtime_folder

_CHECK_LIMIT_S = 20.0


def packages(device: str) -> Check:
    """The engine's packages, for the device of the profile."""
    from tokenflow.setup import packages as engine_packages

    try:
        engine_packages.check_torch_build(device)
    except TokenFlowError as error:
        return failed("engine", error.message, error.hint or f"tfctl engine install --{device}")
    found = engine_packages.describe()
    text = f"SGLang {found.sglang_version}, torch {found.torch_version}"
    if found.sglang_version != found.expected_sglang_version:
        message = f"{text}: the plugin knows SGLang {found.expected_sglang_version} and leaves this one alone"
        return warned("engine", message, f"tfctl engine install --{device}")
    if device == "cpu" and found.unmet_cpu_pins:
        message = f"{text}; other versions than the pinned ones: {', '.join(found.unmet_cpu_pins)}"
        return warned("engine", message, "tfctl engine install --cpu")
    return passed("engine", text)


def profiles() -> Check:
    found = find_profiles()
    faults = find_faults()
    broken = [profile for profile in found if profile.error or profile.path in faults]
    if not found:
        return failed("profiles", "there are no profiles", "reinstall TokenFlow: the built-in ones are missing")
    if broken:
        names = ", ".join(profile.name for profile in broken)
        return failed("profiles", f"invalid: {names}", f"tfctl profile list; correct {broken[0].path}")
    return passed("profiles", f"{len(found)} profiles, all valid")


def settings() -> Check:
    """Asks the daemon's own program, since its packages may be missing here."""
    files = [str(path) for path in settings_files() if path.is_file()]
    code = "from tokenflowd import settings; settings.load()"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=_CHECK_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return skipped("settings", f"they could not be read within {_CHECK_LIMIT_S:g} s", "tokenflowd --version")
    if done.returncode == 0:
        return passed("settings", f"valid: {', '.join(files) or 'no file, all defaults'}")
    last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
    if "ModuleNotFoundError" in last:
        return skipped("settings", "the daemon is not installed here", "pip install 'tokenflow-serving[daemon]'")
    return failed("settings", last.partition(": ")[2] or last, f"correct {' or '.join(files) or 'the environment'}")


def host_pool(profile: str) -> Check:
    """SGLang issue 33862: a host pool below the device pool fills with second copies that nothing can evict."""
    try:
        _, _, contents = read_profile(profile)
    except TokenFlowError as error:
        return skipped("host pool", error.message, error.hint or "tfctl profile list")
    arguments = [str(word) for word in contents.get("engine", {}).get("args", [])]
    if "--enable-hierarchical-cache" not in arguments:
        hint = "--enable-hierarchical-cache in the profile's args"
        return warned("host pool", f"profile {profile} has none: paused streams are computed again", hint)
    ratio = _value_of(arguments, "--hicache-ratio")
    if ratio is not None and ratio <= 1.0:
        message = (
            f"profile {profile}: --hicache-ratio {ratio:g} is no larger than the device pool, and fills up for good"
        )
        return warned("host pool", message, "--hicache-ratio 2 in the profile's args")
    return passed(
        "host pool", f"profile {profile}: {'by size' if ratio is None else f'{ratio:g} times the device pool'}"
    )


def _value_of(arguments: list[str], name: str) -> float | None:
    for position, word in enumerate(arguments):
        text = word.partition("=")[2] if word.startswith(f"{name}=") else ""
        if word == name and position + 1 < len(arguments):
            text = arguments[position + 1]
        if text:
            try:
                return float(text)
            except ValueError:
                return None
    return None


def port(profile: str, own_url: str | None) -> Check:
    """Free, or held by the engine that runs."""
    try:
        _, _, contents = read_profile(profile)
    except TokenFlowError as error:
        return skipped("port", error.message, error.hint or "tfctl profile list")
    engine = contents.get("engine", {})
    host, number = str(engine.get("host", "127.0.0.1")), int(engine.get("port", 30000))
    if own_url is not None and own_url.endswith(f":{number}"):
        return passed("port", f"{number} is the running engine's")
    if number == 0:
        return passed("port", f"profile {profile} takes a free one")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
            probe.listen(1)
        except OSError as error:
            hint = f"who listens: ss -tlnp sport = :{number}; another: tfctl start {profile} -- --port {number + 1}"
            return failed("port", f"{host}:{number} of profile {profile} is not free: {error.strerror}", hint)
    return passed("port", f"{host}:{number} of profile {profile} is free")


def units() -> Check:
    if not service.is_systemd_running():
        return skipped("service", "systemd does not run here", "tfctl start brings a daemon of your own up")
    states = {file.path: file.state for file in service.files(Path("/"))}
    if all(state is FileState.ABSENT for state in states.values()):
        return skipped("service", "not installed: daemons are their users' own", "sudo tfctl service install --now")
    other = [path for path, state in states.items() if state is not FileState.SAME]
    if other:
        hint = "sudo tfctl service install (changes of your own: systemctl edit tokenflowd)"
        return warned("service", f"not as this installation would write it: {', '.join(other)}", hint)
    return passed("service", "the units are those of this installation")


def runtime_folder() -> Check:
    folder = user_runtime_folder()
    try:
        info = folder.lstat()
    except FileNotFoundError:
        return passed("runtime folder", f"{folder} is made when it is needed")
    except OSError as error:
        return failed("runtime folder", f"{folder}: {error.strerror}", f"ls -ld {folder}")
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        message = f"{folder} is not a folder of uid {os.getuid()}"
        return failed("runtime folder", message, f"ls -ld {folder}; or: tfctl --socket PATH start")
    if stat.S_IMODE(info.st_mode) & 0o077:
        return warned("runtime folder", f"{folder} is open to others", f"chmod 700 {folder}")
    return passed("runtime folder", f"{folder} is yours alone")


def device_of(profile: str) -> str:
    """`cpu` where the profile cannot be read."""
    try:
        _, _, contents = read_profile(profile)
    except (TokenFlowError, tomllib.TOMLDecodeError):
        return "cpu"
    return str(contents.get("engine", {}).get("device", "cpu"))

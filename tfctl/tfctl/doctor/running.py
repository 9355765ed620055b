"""The daemon and the engine, where they run; what they have left, where they do not."""

from tfctl.client import Client
from tfctl.doctor.answer import failed, passed, skipped, warned
from tfctl.host_documents import Check
from tfctl.leftover import find_leftover
from tfctl.session import Session
from tokenflow.errors import TokenFlowError
from tokenflow.version import __version__
from tokenflow.wire import EngineState, PluginState, StatusDocument

_GRAVE = ("engine_failed", "engine_wedged")


def find_daemon(session: Session) -> tuple[Check, StatusDocument | None]:
    """The daemon's check, and its status where it answers."""
    try:
        client = session.find()
        if client is None:
            return _without_daemon(session), None
        status = client.get("/v1/status", StatusDocument)
    except TokenFlowError as error:
        return failed("daemon", error.message, error.hint or "tfctl status"), None
    return _of_version(client), status


def _of_version(client: Client) -> Check:
    message = f"tokenflowd {client.daemon_version} answers at {client.path}"
    if client.is_other_version:
        hint = "restart the daemon: systemctl restart tokenflowd, or tfctl stop --daemon; tfctl start"
        return warned("daemon", f"{message}; this tfctl is {__version__}", hint)
    return passed("daemon", message)


def _without_daemon(session: Session) -> Check:
    left = find_leftover(session.options.socket)
    if left is None:
        return skipped("daemon", "tokenflowd is not running", "tfctl start")
    message = f"tokenflowd is not running, and its engine runs on without it (pid {left.pid}, profile {left.profile})"
    return warned("daemon", message, "tfctl start watches it again, tfctl stop ends it")


def engine(status: StatusDocument | None) -> list[Check]:
    """State, plugin, then one check for each alarm."""
    if status is None:
        return [skipped("engine state", "no daemon knows", "tfctl start")]
    info = status.engine
    text = f"{info.state.value}" + (f", profile {info.profile}" if info.profile else "")
    match info.state:
        case EngineState.STOPPED:
            found = [skipped("engine state", "no engine runs", "tfctl start")]
        case EngineState.FAILED | EngineState.WEDGED:
            found = [failed("engine state", info.reason or text, "tfctl logs -n 50; then: tfctl restart")]
        case EngineState.STARTING | EngineState.DRAINING:
            found = [warned("engine state", text, "tfctl status --watch")]
        case EngineState.SERVING | EngineState.BUSY:
            found = [passed("engine state", text), _plugin(status)]
    for alarm in status.alarms:
        make = failed if alarm.kind in _GRAVE else warned
        found.append(make(f"alarm {alarm.kind}", alarm.message, alarm.hint or "docs/runbook.md"))
    return found


def _plugin(status: StatusDocument) -> Check:
    info, policy = status.engine, status.policy
    if info.plugin is not PluginState.ACTIVE:
        detail = f": {info.plugin_detail}" if info.plugin_detail else ""
        return warned("plugin", f"{info.plugin.value}{detail}: streams are served without it", "tfctl logs -n 50")
    return passed("plugin", f"active, mode {policy.mode}, {policy.fault_count} faults")

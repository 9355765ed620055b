"""From what is known now to the list of alarms: each says what is wrong and what to do next. Pure.

The kinds are `tokenflow.wire.AlarmKind`; docs/runbook.md has a page for each.
"""

from dataclasses import dataclass

from tokenflow import link
from tokenflow.link import Telemetry
from tokenflow.policy.states import Mode, RequestState
from tokenflow.wire import Alarm, AlarmKind, EngineInfo, EngineState, PluginState
from tokenflowd import failure
from tokenflowd.observation import Limits
from tokenflowd.storm import Storm
from tokenflowd.trends import WINDOW_S, Trends

_STEPPING = (EngineState.SERVING, EngineState.BUSY, EngineState.WEDGED, EngineState.DRAINING)
_LOG = "tfctl logs -n 50"
_HOST_FULL_S = 30.0
RANK_SKEW = "rank_skew"  # in `blocked_by`: see tokenflow.sglang.attach


@dataclass(frozen=True, slots=True)
class Facts:
    """What alarms are made from."""

    info: EngineInfo
    limits: Limits
    log_path: str
    telemetry: Telemetry | None
    trends: Trends | None
    silence_s: float  # since the scheduler was last heard, or should have been
    wants_enforce: bool  # the profile, or the host, asks for it from the engine's start
    wedge: str | None  # why it is called wedged
    restart_count: int  # within the window of the restart limit
    metrics_problem: str | None = None  # why nothing can be scraped
    had_plugin: bool = False  # an adopted engine's scheduler spoke to the daemon before us


def alarms_of(facts: Facts) -> list[Alarm]:
    """The gravest first."""
    info = facts.info
    found: list[Alarm] = []
    if info.state is EngineState.FAILED:
        message = info.reason or "the engine failed"
        found.append(_alarm(AlarmKind.ENGINE_FAILED, message, failure.hint(facts.log_path)))
    if info.state is EngineState.WEDGED:
        found.append(_wedged(facts))
    if facts.restart_count and info.state is not EngineState.FAILED:
        times = "once" if facts.restart_count == 1 else f"{facts.restart_count} times"
        message = f"the engine has failed and was started again {times} lately"
        found.append(_alarm(AlarmKind.ENGINE_RESTARTED, message, "see why: tfctl events --kind engine_failed"))
    if facts.metrics_problem is not None:
        hint = "see who has the port: ss -tlnp; or set another metrics_listen, then: tfctl stop --daemon; tfctl start"
        found.append(_alarm(AlarmKind.METRICS_UNAVAILABLE, facts.metrics_problem, hint))
    if info.state in _STEPPING:
        found += _of_plugin(facts) + _of_policy(facts)
    return found


def _wedged(facts: Facts) -> Alarm:
    message = facts.wedge or f"work is present and no step has completed for {facts.limits.wedged_after_s:g} s"
    return _alarm(AlarmKind.ENGINE_WEDGED, message, f"{_LOG}; then: tfctl restart")


def _of_plugin(facts: Facts) -> list[Alarm]:
    info, found = facts.info, []
    is_silent = facts.silence_s > facts.limits.telemetry_stale_after_s
    is_lost = facts.telemetry is None and facts.had_plugin
    if (info.plugin is PluginState.ACTIVE or is_lost) and is_silent:
        message = f"the scheduler has not been heard from for {facts.silence_s:.0f} s"
        found.append(_alarm(AlarmKind.TELEMETRY_STALE, message, _LOG))
    if info.plugin is not PluginState.ACTIVE and not is_lost:
        found.append(_plugin(info))
    if facts.telemetry is not None and (outdated := _version(facts.telemetry)) is not None:
        found.append(outdated)
    if facts.telemetry is not None and facts.telemetry.watched_count < facts.telemetry.scheduler_count:
        found.append(_unseen(facts.telemetry.scheduler_count))
    return found


def _unseen(scheduler_count: int) -> Alarm:
    message = (
        f"the engine has {scheduler_count} schedulers and only the first is watched: requests, runway, capacity and "
        "metrics are those of its share alone, and a pause reaches no other"
    )
    hint = "--dp-size without data-parallel attention, or an engine for each GPU (docs/runbook.md#schedulers_unseen)"
    return _alarm(AlarmKind.SCHEDULERS_UNSEEN, message, hint)


def _version(telemetry: Telemetry) -> Alarm | None:
    """A newer daemon runs an older plugin, and says what it cannot see; or the other way round."""
    if telemetry.link_version == link.LINK_VERSION:
        return None
    missing = "; ".join(link.missing_in(telemetry.link_version)) or "what the plugin of that version adds"
    message = (
        f"the engine runs plugin {telemetry.plugin_version} (link {telemetry.link_version}), this daemon knows link "
        f"{link.LINK_VERSION}; missing: {missing}"
    )
    return _alarm(AlarmKind.PLUGIN_OTHER_VERSION, message, "at a quiet time: tfctl restart --drain 60")


def _plugin(info: EngineInfo) -> Alarm:
    if info.plugin is PluginState.DISABLED:
        message = f"after too many faults the plugin has turned itself off (the last one: {info.plugin_detail})"
        hint = "see them: tfctl events --kind fault; then: tfctl restart"
    else:
        detail = f": {info.plugin_detail}" if info.plugin_detail else ""
        message, hint = f"the plugin is {info.plugin.value}{detail}", _LOG
    return _alarm(AlarmKind(f"plugin_{info.plugin.value}"), f"{message}; requests are served without it", hint)


def _of_policy(facts: Facts) -> list[Alarm]:
    telemetry, trends, found = facts.telemetry, facts.trends, []
    if telemetry is None:
        return []
    if RANK_SKEW in telemetry.blocked_by:
        message = "the tensor-parallel ranks came to differ; all streams were started over, and scheduling is stock"
        found.append(_alarm(AlarmKind.RANK_SKEW, message, "at a quiet time: tfctl restart; report it: tfctl bugreport"))
    elif telemetry.blocked_by and telemetry.mode is not Mode.ENFORCE and facts.wants_enforce:
        message = f"mode enforce was asked for and is not possible with {', '.join(telemetry.blocked_by)}"
        hint = "take that option out of its profile, then: tfctl restart PROFILE; what the policy would do: tfctl ps"
        found.append(_alarm(AlarmKind.ENFORCE_BLOCKED, message, hint))
    return found if trends is None else found + _of_trends(trends)


def _of_trends(trends: Trends) -> list[Alarm]:
    found = []
    if (wait := trends.longest_wait) is not None and trends.starved_count:
        what = "been started" if wait.state is RequestState.WAITING else "gone on"
        others = f", and {trends.starved_count - 1} more" if trends.starved_count > 1 else ""
        message = f"{wait.rid} has not {what} for {wait.age_s:.0f} s{others}"
        found.append(
            _alarm(AlarmKind.STARVATION, message, f"tfctl explain {wait.rid}; capacity and demand: tfctl status")
        )
    if (thrash := trends.thrash) is not None:
        message = (
            f"{thrash.rid} was paused {thrash.preemption_count} times in the last {WINDOW_S:.0f} s and made "
            f"{thrash.generated_tokens} tokens in all"
        )
        hint = "longer runs: tfctl tune quantum_s=2; fewer swaps: tfctl tune max_swaps_per_s=5"
        found.append(_alarm(AlarmKind.THRASH, message, hint))
    if (storm := trends.storm) is not None:
        found.append(_storm(storm))
    if zombies := trends.zombie_tokens:
        message = f"{zombies} tokens were made in the last {WINDOW_S:.0f} s for clients that had left"
        found.append(_alarm(AlarmKind.ZOMBIES, message, "look for a proxy that keeps connections of gone clients open"))
    if trends.host_full_s > _HOST_FULL_S:
        message = f"the host pool has had no room for {trends.host_full_s:.0f} s: paused streams will be recomputed"
        hint = "a larger one: tfctl restart -- --hicache-ratio 3 (of the device pool), or --hicache-size GB"
        found.append(_alarm(AlarmKind.HOST_POOL_FULL, message, hint))
    return found


def _storm(storm: Storm) -> Alarm:
    before = "" if storm.made_before_tok_s is None else f", after {storm.made_before_tok_s:.0f} before"
    message = (
        f"KV memory is full: streams were taken out {storm.preemption_count} times in the last {WINDOW_S:.0f} s; "
        f"{storm.made_tok_s:.0f} tok/s were made{before}"
    )
    hint = "admit fewer: tfctl restart -- --max-running-requests N, or more KV room: -- --mem-fraction-static RATIO"
    return _alarm(AlarmKind.PREEMPTION_STORM, message, hint)


def _alarm(kind: AlarmKind, message: str, hint: str) -> Alarm:
    return Alarm(kind=kind, message=message, hint=hint)

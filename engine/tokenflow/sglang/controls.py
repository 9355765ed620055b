"""The operator's hand on the scheduler: tunables, mode, and requests that are held. Runs on the scheduler's thread."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tokenflow import link
from tokenflow.events import EventKind
from tokenflow.policy.states import Mode, RequestState
from tokenflow.policy.tunables import Tunables, check, plain
from tokenflow.sglang.driver import can_come_back
from tokenflow.sglang.event_log import EventLog
from tokenflow.sglang.governor import Governor
from tokenflow.sglang.tracker import TrackedRequest


class CommandRefusedError(Exception):
    """Why a command was not carried out, as the reply says it. `code` is one of `tokenflow.errors`."""

    def __init__(self, code: str, message: str, hint: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.field = field


class Controls:
    """Carries out the commands that change something."""

    def __init__(self, governor: Governor, log: EventLog) -> None:
        self._governor = governor
        self._log = log
        self._initial = plain(governor.tunables)

    def tune(self, command: link.Tune) -> Tunables:
        """What is in force afterwards, or would be. Raises CommandRefusedError, with every problem at once."""
        if command.if_revision is not None and command.if_revision != self._governor.revision:
            raise CommandRefusedError(
                "revision_mismatch",
                f"the tunables are at revision {self._governor.revision} by now, not {command.if_revision}",
                "look at them again: tfctl tune",
                "if_revision",
            )
        wanted, problems = check(command.changes, self._governor.tunables)
        messages = [problem.message for problem in problems]
        if wanted.mode is Mode.ENFORCE and not self._governor.is_enforcing and self._governor.blockers:
            messages.append(f"mode: {self._cannot_enforce()}")
            if not problems:
                raise CommandRefusedError("unsupported", self._cannot_enforce(), "tfctl mode observe", "mode")
        if messages:
            raise CommandRefusedError(
                "usage", "; ".join(messages), "see every key with its range: tfctl tune", problems[0].key
            )
        if not command.dry_run:
            self._governor.apply(wanted, command.who)
        return wanted

    def set_mode(self, command: link.SetMode) -> None:
        self.tune(link.Tune(changes={"mode": command.mode.value}, who=command.who))

    def hold(self, command: link.PauseRequest) -> RequestState:
        """The state in which the request was held. Raises CommandRefusedError."""
        if not self._governor.is_enforcing:
            raise CommandRefusedError(
                "unsupported",
                f"in mode {self._governor.mode.value} nothing is paused",
                "tfctl mode enforce",
            )
        entry = self._live(command.rid)
        state = entry.stream.state
        if entry.is_held:
            return state
        if state is not RequestState.WAITING and not can_come_back(entry.req):
            raise CommandRefusedError(
                "unsupported",
                f"request {command.rid} cannot be paused without loss: it is ending, or was sent with log "
                "probabilities, embeddings, images, a session or beams",
                "end it instead: close its connection; or see the others: tfctl ps",
            )
        self._governor.hold(entry)
        self._log.note(EventKind.HELD, command.rid, who=command.who, terms={"state": state.value})
        return state

    def unhold(self, command: link.ResumeRequest) -> RequestState:
        """The state in which the request was let go. Raises CommandRefusedError."""
        entry = self._live(command.rid)
        state = entry.stream.state
        if not entry.is_held:
            why = f" ({entry.stream.reason.value})" if entry.stream.reason else ""
            raise CommandRefusedError(
                "conflict",
                f"request {command.rid} is not held by an operator; it is {state.value}{why}",
                "tfctl ps",
            )
        entry.is_held = False
        self._log.note(EventKind.UNHELD, command.rid, who=command.who, terms={"state": state.value})
        return state

    def show(self, command: link.ShowStream) -> link.StreamState:
        """One request's state, of a live one or of one that has just ended. Raises CommandRefusedError."""
        tracker = self._governor.tracker
        entry = tracker.ended.get(command.rid) or self._live(command.rid)
        return entry.stream

    def explain(self, command: link.ExplainStream) -> Mapping[str, Any]:
        """The fields of an `Explanation` of the last decision. Raises CommandRefusedError."""
        if self._governor.mode is Mode.OFF:
            raise CommandRefusedError("unsupported", "in mode off the policy decides nothing", "tfctl mode observe")
        self._live(command.rid)
        explanation = self._governor.driver.explain(command.rid)
        if explanation is None:
            raise CommandRefusedError(
                "conflict", f"the policy has not seen request {command.rid} yet", f"tfctl explain {command.rid}"
            )
        return asdict(explanation)

    @property
    def in_force(self) -> Tunables:
        return self._governor.tunables

    def tuned_keys(self, tunables: Tunables) -> list[str]:
        """The keys whose value is another than at the engine's start."""
        return [key for key, value in plain(tunables).items() if value != self._initial[key]]

    def _live(self, rid: str) -> TrackedRequest:
        tracker = self._governor.tracker
        entry = tracker.requests.get(rid)
        if entry is not None:
            return entry
        if (ended := tracker.ended.get(rid)) is not None:
            raise CommandRefusedError(
                "conflict", f"request {rid} has ended: it is {ended.stream.state.value}", "tfctl ps --all"
            )
        raise CommandRefusedError("not_found", f"there is no request {rid!r} in the engine", "tfctl ps")

    def _cannot_enforce(self) -> str:
        return f"decisions cannot be carried out with {', '.join(self._governor.blockers)}"


def carry_out(controls: Controls, command: link.Command) -> Mapping[str, Any]:
    """The fields of the reply that a command adds to the usual ones. Raises CommandRefusedError."""
    deadline_s = getattr(command, "deadline_s", None)
    if deadline_s is not None and time.monotonic() > deadline_s:
        raise CommandRefusedError("timeout", "the command came too late and was not carried out", "tfctl status")
    match command:
        case link.SetMode():
            controls.set_mode(command)
        case link.Tune():
            wanted = controls.tune(command)
            return {"tunables": plain(wanted), "tuned_keys": controls.tuned_keys(wanted)}
        case link.PauseRequest():
            return {"held_state": controls.hold(command)}
        case link.ResumeRequest():
            return {"held_state": controls.unhold(command)}
        case link.ShowStream():
            return {"stream": controls.show(command)}
        case link.ExplainStream():
            return {"explanation": controls.explain(command)}
        case link.Ping():
            tunables = controls.in_force
            return {"tunables": plain(tunables), "tuned_keys": controls.tuned_keys(tunables)}
        case _:
            raise CommandRefusedError("unsupported", "not a command for the scheduler")
    return {}

"""Changes of tunables: checked together, put in force in the engine and kept on the disk, all of them or none."""

import asyncio
import time
from collections.abc import Collection
from typing import Any

import structlog

from tokenflow import link
from tokenflow.errors import ConflictError, OperationError, RevisionError, UsageError
from tokenflow.link import Reply
from tokenflow.policy.states import Mode
from tokenflow.policy.tunables import Tunables, check, plain
from tokenflow.tuning import ALL_KEYS, TuneRequest
from tokenflowd.commands import LIMIT_S
from tokenflowd.effects import Effects
from tokenflowd.engine_process import EngineProcess
from tokenflowd.lifecycle import EngineLifecycle
from tokenflowd.tunable_levels import TunableLevels
from tokenflowd.tuned_file import TunedDraft

log = structlog.get_logger()
_KEYS = tuple(plain(Tunables()))
_DAEMON_SETTINGS = ("metrics_listen", "on_daemon_stop")  # docs/tuning.md: settings of the daemon, not of the engine
_HINT = "see every key with its range: tfctl tune"


class Tuner:
    """One change at a time: two that persist must not overwrite each other's file."""

    def __init__(self, lifecycle: EngineLifecycle, effects: Effects) -> None:
        self._lifecycle = lifecycle
        self.effects = effects
        self._turn = asyncio.Lock()

    async def change(self, wish: TuneRequest, who: str | None) -> Reply | None:
        """What the engine reports afterwards; None where none serves, and the file was changed.

        Raises UsageError with every problem, RevisionError, ConflictError, OperationError; nothing is changed then,
        but for an error that says otherwise.
        """
        _check_keys(wish)
        async with self._turn:
            engine = self._lifecycle.engine
            if engine is None or engine.serving_since_s is None:
                self._change_file(wish, who)
                return None
            return await self._change_engine(engine, wish, who)

    def _change_file(self, wish: TuneRequest, who: str | None) -> None:
        """Without an engine: for the next one."""
        if not wish.persist and not wish.reset:
            raise ConflictError(
                "no engine is serving, so there is nothing to tune",
                hint="tfctl start; or, for the next start: tfctl tune --persist KEY=VALUE",
            )
        if wish.if_revision:
            raise RevisionError("no engine is serving, so there is no revision", hint="tfctl tune", field="if_revision")
        levels = self._lifecycle.levels
        forgotten = _expanded(wish.reset)
        base, problems = check(levels.untuned(None) | _kept(levels, forgotten), Tunables())
        wanted, found = check(wish.changes, base)
        problems += found
        if problems:
            raise UsageError("; ".join(problem.message for problem in problems), hint=_HINT, field=problems[0].key)
        if not wish.dry_run:
            values = plain(wanted)
            levels.tuned.draft({key: values[key] for key in wish.changes}, forgotten, who).commit()
            log.info("tuned_for_the_next_start", changes=wish.changes, reset=wish.reset, by=who)

    async def _change_engine(self, engine: EngineProcess, wish: TuneRequest, who: str | None) -> Reply:
        levels, plan = self._lifecycle.levels, self._lifecycle.plan
        untuned = levels.untuned(plan.profile if plan else None)
        if engine.telemetry is not None and engine.telemetry.blocked_by and untuned["mode"] == Mode.ENFORCE:
            untuned["mode"] = Mode.OBSERVE.value  # as at its start
        forgotten = _expanded(wish.reset)
        changes = {key: untuned[key] for key in forgotten} | wish.changes
        before = link.checked(await engine.command(link.Ping()))
        if wish.dry_run:
            return await self._tune(engine, wish, changes, who, dry_run=True)
        draft = None
        if wish.persist:
            _check_by_itself(untuned | _kept(levels, forgotten) | wish.changes)
        if wish.persist or (forgotten and levels.tuned.path.exists()):
            # Checked by the engine before anything is written, written before anything is in force.
            values = (await self._tune(engine, wish, changes, who, dry_run=True)).tunables or {}
            draft = levels.tuned.draft(
                {key: values[key] for key in wish.changes} if wish.persist else {}, forgotten, who
            )
        try:
            reply = await self._tune(engine, wish, changes, who, dry_run=False)
        except BaseException:
            if draft is not None:
                draft.discard()
            raise
        log.info("tuned", changes=wish.changes, reset=wish.reset, persist=wish.persist, revision=reply.revision, by=who)
        observed = await self._read_back(engine, reply, draft)
        self.effects.note(before.tunables or {}, observed.tunables or {}, who)
        return observed

    async def _tune(
        self, engine: EngineProcess, wish: TuneRequest, changes: dict[str, Any], who: str | None, *, dry_run: bool
    ) -> Reply:
        command = link.Tune(
            changes=changes,
            if_revision=wish.if_revision,
            dry_run=dry_run,
            deadline_s=time.monotonic() + LIMIT_S,
            who=who,
        )
        return link.checked(await engine.command(command))

    async def _read_back(self, engine: EngineProcess, reply: Reply, draft: TunedDraft | None) -> Reply:
        """What the engine works with now, not what it was told."""
        if draft is not None:
            draft.commit()
        observed = link.checked(await engine.command(link.Ping()))
        if observed.revision == reply.revision and observed.tunables != reply.tunables:
            raise OperationError("the engine works with other values than it has taken", hint="look: tfctl tune")
        return observed


def _kept(levels: TunableLevels, forgotten: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in levels.persisted().items() if key not in forgotten}


def _check_by_itself(values: dict[str, Any]) -> None:
    """Raises UsageError for what would fit only together with values that this engine has and the next will not."""
    _, problems = check(values, Tunables())
    if problems:
        text = "; ".join(problem.message for problem in problems)
        raise UsageError(
            f"not for the next engine: {text}",
            hint="persist what it goes with as well, in one command",
            field="persist",
        )


def _check_keys(wish: TuneRequest) -> None:
    """Raises UsageError."""
    both = sorted(set(wish.changes) & set(_expanded(wish.reset)))
    unknown = [key for key in wish.reset if key != ALL_KEYS and key not in _KEYS]
    settings = [key for key in (*wish.changes, *wish.reset) if key in _DAEMON_SETTINGS]
    if settings:
        raise UsageError(
            f"{settings[0]} is a setting of the daemon, not a tunable of the engine",
            hint=f"write it into tokenflow.toml, then start the daemon anew: {settings[0]} = ...",
            field=settings[0],
        )
    if unknown:
        raise UsageError("; ".join(f"there is no tunable {key!r}" for key in unknown), hint=_HINT, field=unknown[0])
    if both and ALL_KEYS not in wish.reset:
        raise UsageError(f"{', '.join(both)}: set and reset at once", hint=_HINT, field=both[0])
    if not wish.changes and not wish.reset:
        raise UsageError("there is nothing to change: changes and reset are empty", hint=_HINT, field="changes")


def _expanded(reset: list[str]) -> tuple[str, ...]:
    return _KEYS if ALL_KEYS in reset else tuple(reset)

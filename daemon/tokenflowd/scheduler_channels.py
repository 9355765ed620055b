"""Commands to the engine's schedulers: one, or with `--dp-size` several, which are asked at the same time.

What turns something up is done by all or none: a value, mode `enforce`. What turns it down is done by each that can,
whatever becomes of the others: `mode off` must reach the well ones when one hangs. One whose plugin has turned itself
off enforces nothing, so its refusals count only where nobody else answers.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import zmq.asyncio

from tokenflow import link
from tokenflow.errors import TimedOutError
from tokenflow.policy.states import Mode
from tokenflow.wire import PluginState
from tokenflowd.command_channel import CommandChannel

_OF_ONE_REQUEST = (link.PauseRequest, link.ResumeRequest, link.ExplainStream, link.ShowStream)
_LEAST_TELLING_LAST = ("unsupported", "not_found")
_Answer = link.Reply | BaseException


class SchedulerChannels:
    """Grows with `expect`, as more schedulers become known."""

    def __init__(self, context: "zmq.asyncio.Context", folder: Path) -> None:
        self._context = context
        self._folder = folder
        self._channels: list[CommandChannel] = []
        self.expect(1)

    def expect(self, count: int) -> None:
        """So many schedulers have a link."""
        while len(self._channels) < count:
            name = link.own_socket(link.SCHEDULER_SOCKET, len(self._channels))
            self._channels.append(CommandChannel(self._context, self._folder / name))

    async def ask(self, command: link.Command) -> link.Reply:
        """The schedulers' common answer; its revision is the sum of theirs. Raises TimedOutError when one of them
        does not answer that had to."""
        if len(self._channels) == 1:
            return await self._channels[0].ask(command)
        if isinstance(command, _OF_ONE_REQUEST):
            return await self._ask_its_owner(command)
        if isinstance(command, link.Tune):
            return await self._tune(command)
        if isinstance(command, link.SetMode) and command.mode is Mode.ENFORCE:
            return await self._enforce(command)
        return _common(await self._ask_all([command] * len(self._channels)))

    async def _ask_all(self, commands: Sequence[link.Command]) -> list[_Answer]:
        asked = (channel.ask(command) for channel, command in zip(self._channels, commands, strict=True))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    async def _ask_its_owner(self, command: link.Command) -> link.Reply:
        """Only the scheduler that has the request does anything. Where one is silent, it may be that one."""
        asked = [asyncio.ensure_future(channel.ask(command)) for channel in self._channels]
        replies: list[link.Reply] = []
        silent: BaseException | None = None
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    replies.append(await answer)
                except TimedOutError as error:
                    silent = error
                    continue
                if replies[-1].error_code not in _LEAST_TELLING_LAST:
                    return replies[-1]
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        if silent is not None:
            raise silent
        return min(replies, key=lambda reply: _LEAST_TELLING_LAST.index(str(reply.error_code)))

    async def _state(self) -> list[link.Reply]:
        answers = await self._ask_all([link.Ping()] * len(self._channels))
        _common(answers)  # raises where one is silent
        return [answer for answer in answers if isinstance(answer, link.Reply)]

    async def _enforce(self, command: link.SetMode) -> link.Reply:
        before = await self._state()
        undo = [msgspec.structs.replace(command, mode=was.mode or Mode.OBSERVE, deadline_s=None) for was in before]
        return await self._all_or_none([command] * len(before), undo)

    async def _tune(self, command: link.Tune) -> link.Reply:
        before = await self._state()
        if command.if_revision is not None and command.if_revision != (revision := sum(was.revision for was in before)):
            message = f"the tunables are at revision {revision} by now, not {command.if_revision}"
            return msgspec.structs.replace(
                before[0],
                revision=revision,
                error_code="revision_mismatch",
                error_message=message,
                error_hint="look again: tfctl tune",
                error_field="if_revision",
            )
        own = [
            msgspec.structs.replace(command, if_revision=None if command.if_revision is None else was.revision)
            for was in before
        ]
        checked = _common(await self._ask_all([msgspec.structs.replace(one, dry_run=True) for one in own]))
        if command.dry_run or checked.error_code is not None:
            return checked
        undo = [
            link.Tune(changes={key: (was.tunables or {}).get(key) for key in command.changes}, who=command.who)
            for was in before
        ]
        return await self._all_or_none(own, undo)

    async def _all_or_none(self, commands: Sequence[link.Command], undo: Sequence[link.Command]) -> link.Reply:
        answers = await self._ask_all(commands)
        failed = [answer for answer in answers if _has_failed(answer)]
        if failed:
            done = [index for index, answer in enumerate(answers) if _is_done(answer)]
            back = (self._channels[index].ask(undo[index]) for index in done)
            await asyncio.gather(*back, return_exceptions=True)
        return _common(answers)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


def _is_done(answer: _Answer) -> bool:
    return isinstance(answer, link.Reply) and answer.error_code is None


def _is_off(answer: _Answer) -> bool:
    """The refusal of a plugin that has turned itself off."""
    return isinstance(answer, link.Reply) and not _is_done(answer) and answer.plugin is PluginState.DISABLED


def _has_failed(answer: _Answer) -> bool:
    return not _is_done(answer) and not _is_off(answer)


def _common(answers: Sequence[_Answer]) -> link.Reply:
    """A refusal, else the reply of one that works with other values than the first, so that it is noticed."""
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    replies = [answer for answer in answers if isinstance(answer, link.Reply)]
    telling = [reply for reply in replies if reply.plugin is not PluginState.DISABLED] or replies
    refused = next((reply for reply in telling if reply.error_code is not None), None)
    first = telling[0]
    odd = next((reply for reply in telling if (reply.mode, reply.tunables) != (first.mode, first.tunables)), first)
    return msgspec.structs.replace(refused or odd, revision=sum(reply.revision for reply in replies))

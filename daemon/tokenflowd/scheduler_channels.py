"""Commands to the engine's schedulers: one, or with `--dp-size` several, which then do the same or nothing."""

from pathlib import Path

import msgspec
import zmq.asyncio

from tokenflow import link
from tokenflowd.command_channel import CommandChannel

_NOT_FOUND = "not_found"
_OF_ONE_REQUEST = (link.PauseRequest, link.ResumeRequest, link.ExplainStream, link.ShowStream)


class SchedulerChannels:
    """Grows with `expect`, when the first scheduler has said how many there are."""

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
        """The schedulers' common answer. Raises TimedOutError when one of them does not answer."""
        if len(self._channels) == 1:
            return await self._channels[0].ask(command)
        if isinstance(command, _OF_ONE_REQUEST):
            return await self._ask_its_owner(command)
        if isinstance(command, link.SetMode):
            return await self._set_mode(command)
        if isinstance(command, link.Tune) and not command.dry_run:
            refused = _refusal(await self._ask_all(msgspec.structs.replace(command, dry_run=True)))
            if refused is not None:
                return refused
        return _common(await self._ask_all(command))

    async def _ask_all(self, command: link.Command) -> list[link.Reply]:
        return [await channel.ask(command) for channel in self._channels]

    async def _ask_its_owner(self, command: link.Command) -> link.Reply:
        for channel in self._channels:
            reply = await channel.ask(command)
            if reply.error_code != _NOT_FOUND:
                break
        return reply

    async def _set_mode(self, command: link.SetMode) -> link.Reply:
        """Where one refuses, those that have taken it go back to what they were."""
        before = await self._ask_all(link.Ping())
        replies: list[link.Reply] = []
        for channel in self._channels:
            replies.append(await channel.ask(command))
            if replies[-1].error_code is None:
                continue
            for taken, was in zip(self._channels[: len(replies) - 1], before, strict=False):
                if was.mode is not None:
                    await taken.ask(msgspec.structs.replace(command, mode=was.mode))
            return replies[-1]
        return _common(replies)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


def _refusal(replies: list[link.Reply]) -> link.Reply | None:
    return next((reply for reply in replies if reply.error_code is not None), None)


def _common(replies: list[link.Reply]) -> link.Reply:
    """A refusal, else the reply of one that works with other values than the first, so that it is noticed."""
    first = replies[0]
    odd = next((reply for reply in replies if (reply.mode, reply.tunables) != (first.mode, first.tunables)), first)
    return _refusal(replies) or odd

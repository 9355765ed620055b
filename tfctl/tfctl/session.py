"""What one run of a command works with: the global options, the way to the daemon and the look of the output."""

import sys
from functools import cached_property
from pathlib import Path

import typer

from tfctl.client import Client, find_socket, no_daemon
from tfctl.options import GlobalOptions, global_options
from tfctl.output import Look, look_of, note, with_socket
from tokenflow.version import __version__


class Session:
    """Made once per command, from its context."""

    def __init__(self, ctx: typer.Context) -> None:
        self.options: GlobalOptions = global_options(ctx)
        self._has_warned = False

    @property
    def as_json(self) -> bool:
        return self.options.as_json

    @property
    def is_chatty(self) -> bool:
        """Progress and hints are wanted: neither --json nor --quiet."""
        return not (self.options.as_json or self.options.quiet)

    @cached_property
    def look(self) -> Look:
        """How text on stdout may look."""
        return look_of(sys.stdout, self.options.socket)

    def next_step(self, text: str) -> str:
        """A text that names commands, with the `--socket` that was given."""
        return with_socket(text, self.options.socket)

    def find_socket(self) -> Path | None:
        """See `tfctl.client.find_socket`; `--socket` counts alone where it is given."""
        return find_socket(self.options.socket)

    def find(self) -> Client | None:
        """A client of the daemon that answers, or None."""
        path = self.find_socket()
        return None if path is None else Client(path, self.options.timeout_s)

    def client(self) -> Client:
        """As `find`; DaemonUnreachableError if none answers."""
        client = self.find()
        if client is None:
            raise no_daemon()
        return client

    def warn_if_other_version(self, client: Client) -> None:
        """One line, once, if the daemon is of another version: fields may be missing."""
        if client.is_other_version and not self._has_warned and not self.options.quiet:
            self._has_warned = True
            note(
                f"warning: tfctl is {__version__}, the daemon is {client.daemon_version}; "
                "restart it: systemctl restart tokenflowd (streams go on), or "
                + self.next_step("tfctl stop --drain 600 --daemon; tfctl start")
            )

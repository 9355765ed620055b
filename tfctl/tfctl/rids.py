"""A request id on the command line: what it looks like, and its completion by those that are live."""

from typing import Annotated

import typer

from tokenflow.errors import UsageError

_COMPLETION_LIMIT_S = 0.2  # a shell that completes must not hang


def complete(ctx: typer.Context, incomplete: str) -> list[str]:
    """The live ids that begin so; none where the daemon does not answer at once."""
    from tfctl.client import Client, find_socket
    from tfctl.options import global_options
    from tokenflow.wire import RequestsDocument

    try:
        path = find_socket(global_options(ctx).socket)
        if path is None:
            return []
        rows = Client(path, _COMPLETION_LIMIT_S).get("/v1/requests", RequestsDocument).requests
    except Exception:  # noqa: BLE001 - whatever it is: nothing is completed, and the shell goes on
        return []
    return [row.rid for row in rows if row.rid.startswith(incomplete)]


Rid = Annotated[
    str,
    typer.Argument(metavar="RID", show_default=False, autocompletion=complete, help="A request, as tfctl ps names it."),
]


def checked(rid: str) -> str:
    """The rid as it is: no prefix, no pattern. Raises UsageError for an empty one."""
    if not rid.strip():
        raise UsageError("RID is empty", hint="tfctl ps", field="rid")
    return rid

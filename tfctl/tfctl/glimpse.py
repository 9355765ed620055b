"""What `tfctl transfers` and `tfctl capacity` share: a part of the status, once or again and again."""

from collections.abc import Callable

from tfctl.client import Client
from tfctl.output import Look, note, write_json
from tfctl.session import Session
from tfctl.watch import Screen, watch_silence_s
from tokenflow.wire import Document, EngineState, StatusDocument

Make = Callable[[Client, StatusDocument], Document]
Render = Callable[[Document, Look], list[str]]
_WITHOUT_LOAD = (EngineState.STOPPED, EngineState.STARTING, EngineState.FAILED)


def show(session: Session, watch_s: float | None, make: Make, render: Callable[[Document, Look], list[str]]) -> None:
    """`make` turns each status into the command's own document, `render` that into lines."""
    client = session.client()
    if watch_s is None:
        _show_one(session, client, client.get("/v1/status", StatusDocument), make, render, Screen(is_repeated=False))
        return
    screen = Screen(is_repeated=True)
    query = {"watch": watch_s}
    for status in client.stream("/v1/status", StatusDocument, query, silence_s=watch_silence_s(watch_s)):
        _show_one(session, client, status, make, render, screen)
    if session.is_chatty:
        note("the daemon has ended")


def _show_one(
    session: Session,
    client: Client,
    status: StatusDocument,
    make: Make,
    render: Render,
    screen: Screen,
) -> None:
    session.warn_if_other_version(client)
    document = make(client, status)
    if session.as_json:
        write_json(document)
        return
    lines = render(document, session.look)
    if status.engine.state in _WITHOUT_LOAD:
        lines = [session.next_step(f"the engine is {status.engine.state}: tfctl status"), *lines]
    screen.show(lines)

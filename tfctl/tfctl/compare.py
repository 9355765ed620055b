"""`tfctl tune --compare`: what other values would have done, before they are put in force."""

import time
from collections.abc import Mapping
from pathlib import Path

from tfctl.client import Client
from tfctl.documents import TuneComparisonDocument
from tfctl.output import note, write_json, write_line
from tfctl.session import Session
from tfctl.views.cells import paint_line
from tfctl.views.comparison import effect_lines, value_line
from tfctl.whatif import LookAt, WhatIf
from tokenflow.errors import ConfigurationError, ConflictError, UsageError
from tokenflow.policy.tunables import Tunables, check, plain
from tokenflow.tuning import TunablesDocument
from tokenflow.wire import RequestsDocument, StatusDocument

INTERVAL_S = 0.5


def carry_out(session: Session, changes: Mapping[str, object], over_s: float, recording: Path | None) -> None:
    """Watches the daemon for `over_s` seconds, or reads a recording of the view. Changes nothing."""
    if recording is None:
        client = session.client()
        base = base_of(client.get("/v1/tunables", TunablesDocument))
        changed = changed_by(changes, base)
        looks = _watched(session, client, over_s)
    else:
        looks, base = _recorded(recording)
        changed = changed_by(changes, base)
    if not any(look.rows for look in looks):
        raise ConflictError(
            "there was no request to compare on", hint="compare while streams run, or on a recording: --from FILE"
        )
    whatif = WhatIf(looks, base)
    before, after = whatif.effect(base), whatif.effect(changed)
    old, new = plain(base), plain(changed)
    if session.as_json:
        write_json(
            TuneComparisonDocument(
                changes={key: new[key] for key in changes},
                span_s=round(whatif.span_s, 3),
                look_count=len(whatif),
                before=before,
                after=after,
            )
        )
        return
    look = session.look
    write_line(f"over {whatif.span_s:.0f} s, {len(whatif)} looks; nothing was changed")
    lines = [*effect_lines(before, after, look)[:1], *(value_line(key, old[key], new[key]) for key in changes)]
    for line in [*lines, *effect_lines(before, after, look)[1:]]:
        write_line(paint_line(line, look, gap="  "))


def base_of(document: TunablesDocument) -> Tunables:
    """The values in force. Raises ConflictError where no engine serves."""
    values = {row.key: row.value for row in document.tunables if row.value is not None}
    if not values:
        raise ConflictError("no engine is serving, so there is nothing to compare with", hint="tfctl start")
    return check(values, Tunables())[0]


def changed_by(changes: Mapping[str, object], base: Tunables) -> Tunables:
    """Raises UsageError with every problem."""
    changed, problems = check(changes, base)
    if problems:
        text = "; ".join(problem.message for problem in problems)
        raise UsageError(text, hint="see every key with its range: tfctl tune", field=problems[0].key)
    return changed


def _watched(session: Session, client: Client, over_s: float) -> list[LookAt]:
    if session.is_chatty:
        note(f"watching for {over_s:g} s")
    looks = []
    until_s = time.monotonic() + over_s
    while True:
        status = client.get("/v1/status", StatusDocument)
        rows = client.get("/v1/requests", RequestsDocument).requests
        now_s = time.monotonic()
        looks.append(LookAt(now_s, status, rows))
        if now_s + INTERVAL_S > until_s:
            return looks
        time.sleep(INTERVAL_S)


def _recorded(path: Path) -> tuple[list[LookAt], Tunables]:
    """Raises ConfigurationError."""
    from tokenflow_tui.moment import UnreadableError
    from tokenflow_tui.recording import read

    looks, base = [], Tunables()
    try:
        for packed in read(path).moments:
            moment = packed.moment()
            if moment.tunables is not None:
                base = base_of(moment.tunables)
            if moment.status is not None and moment.requests is not None:
                looks.append(LookAt(moment.at_s, moment.status, moment.requests.requests))
    except UnreadableError as error:
        raise ConfigurationError(
            f"{path} cannot be read by this tfctl ({error})", hint="make another: tfctl top --record FILE"
        ) from error
    return looks, base

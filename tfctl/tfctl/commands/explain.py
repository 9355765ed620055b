"""`tfctl explain`"""

import math
from typing import Annotated
from urllib.parse import quote

import typer

from tfctl.formats import seconds
from tfctl.options import Command
from tfctl.output import Role, write_json, write_line
from tfctl.rids import checked, complete
from tfctl.session import Session
from tfctl.views.explain import render_explained
from tokenflow.errors import UsageError
from tokenflow.policy.buffer import MAX_RATE_TOK_S, MIN_RATE_TOK_S
from tokenflow.policy.explanation import Explanation, explain_numbers
from tokenflow.policy.tunables import Tunables
from tokenflow.tuning import ExplainDocument

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_DEFAULTS = Tunables()
_MEANINGS = {
    "unread_tokens": "unread tokens",
    "rate_tok_s": "consumption rate",
    "evict_s": "evict",
    "load_s": "load",
    "schedule_s": "schedule",
    "transition_s": "evict + load + schedule",
    "safety_factor": "safety factor",
    "protected_s": "safety factor x transition",
    "protected_tokens": "the same in tokens, at the rate",
    "prefill_s": "the newcomer's prefill",
    "reserve_s": "reserve",
    "prefill_floor_s": "prefill + reserve",
    "margin_s": "runway - required",
}


def _from_zero(value: float | None) -> float | None:
    if value is not None and not 0 <= value < math.inf:
        raise typer.BadParameter(f"{value:g} is not a number from 0 up")
    return value


def _rate(value: float | None) -> float | None:
    if value is not None and not MIN_RATE_TOK_S <= value <= MAX_RATE_TOK_S:
        raise typer.BadParameter(f"{value:g} is not between {MIN_RATE_TOK_S:g} and {MAX_RATE_TOK_S:g}")
    return value


def _factor(value: float | None) -> float | None:
    if value is not None and not 1 <= value < math.inf:
        raise typer.BadParameter(f"{value:g} is not a number from 1 up")
    return value


@app.command(cls=Command)
def explain(
    ctx: typer.Context,
    rid: Annotated[
        str | None,
        typer.Argument(metavar="RID", show_default=False, autocompletion=complete, help="A live request."),
    ] = None,
    buffer_tokens: Annotated[
        float | None, typer.Option("--buffer", metavar="B", callback=_from_zero, help="Unread tokens.")
    ] = None,
    rate_tok_s: Annotated[
        float | None, typer.Option("--rate", metavar="R", callback=_rate, help="Tokens read per second.")
    ] = None,
    evict_ms: Annotated[float, typer.Option("--evict-ms", metavar="MS", callback=_from_zero, help="Moving out.")] = 0,
    load_ms: Annotated[float, typer.Option("--load-ms", metavar="MS", callback=_from_zero, help="Coming back.")] = 0,
    schedule_ms: Annotated[
        float, typer.Option("--schedule-ms", metavar="MS", callback=_from_zero, help="Until a step begins.")
    ] = 0,
    safety_factor: Annotated[
        float, typer.Option("--safety-factor", metavar="F", callback=_factor, help="On all three together.")
    ] = _DEFAULTS.safety_factor,
    prefill_ms: Annotated[
        float | None,
        typer.Option("--prefill-ms", metavar="MS", callback=_from_zero, help="The newcomer's prefill."),
    ] = None,
    reserve_s: Annotated[
        float | None,
        typer.Option("--reserve-s", metavar="S", callback=_from_zero, help="Kept beyond that prefill (0.5)."),
    ] = None,
) -> None:
    """Say why a stream may be paused or not, with every term.

    With RID: of a live request, by the policy's last decision. With --buffer and --rate it works the safety condition
    out from the numbers given; that needs no daemon.
    """
    session = Session(ctx)
    if rid is not None:
        if buffer_tokens is not None or rate_tok_s is not None:
            raise UsageError("a request or numbers, not both", hint=f"tfctl explain {rid}", field="rid")
        _explain_live(session, checked(rid))
        return
    if buffer_tokens is None or rate_tok_s is None:
        missing = "--buffer" if buffer_tokens is None else "--rate"
        raise UsageError(
            f"{missing} is missing",
            hint="for example: tfctl explain --buffer 10 --rate 20 --load-ms 220",
            field=missing,
        )
    if prefill_ms is None and reserve_s is not None:
        prefill_ms = 0.0
    found = explain_numbers(
        buffer_tokens,
        rate_tok_s,
        evict_s=evict_ms / 1e3,
        load_s=load_ms / 1e3,
        schedule_s=schedule_ms / 1e3,
        safety_factor=safety_factor,
        prefill_s=None if prefill_ms is None else prefill_ms / 1e3,
        reserve_s=_DEFAULTS.reserve_s if reserve_s is None else reserve_s,
    )
    if session.as_json:
        write_json(_document(found))
    else:
        _write_table(session, found)


def _explain_live(session: Session, rid: str) -> None:
    client = session.client()
    document = client.get(f"/v1/requests/{quote(rid, safe='')}/explain", ExplainDocument)
    session.warn_if_other_version(client)
    if session.as_json:
        write_json(document)
    else:
        for line in render_explained(document, session.look):
            write_line(line)


def _document(found: Explanation) -> ExplainDocument:
    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, 9)

    return ExplainDocument(
        rid=found.rid,
        state=found.state,
        reason=found.reason,
        runway_s=rounded(found.runway_s),
        required_runway_s=rounded(found.required_runway_s),
        required_tokens=found.required_tokens,
        preemptible=found.preemptible,
        terms=found.terms,
    )


def _write_table(session: Session, found: Explanation) -> None:
    look = session.look
    for key, value in found.terms.items():
        if value is not None:
            write_line(f"{_MEANINGS[key]:<32} {_cell(key, value):>12}")
    write_line(f"{'runway':<32} {seconds(found.runway_s):>12}")
    write_line(f"{'required runway':<32} {seconds(found.required_runway_s):>12}")
    write_line(f"{'required unread tokens':<32} {found.required_tokens:>12}")
    if found.preemptible:
        write_line(look.paint("safe to pause: its reader would notice nothing", Role.GOOD))
    else:
        write_line(look.paint("not safe to pause: its reader could run dry", Role.WARN))


def _cell(key: str, value: float | int | str | bool) -> str:
    if key.endswith("_s") and not key.endswith("_tok_s") and isinstance(value, float):
        return f"{value:.3f} s"
    unit = " tok/s" if key.endswith("_tok_s") else ""
    return f"{value:g}{unit}" if isinstance(value, int | float) else str(value)

"""One frame of the live view as plain text. Needs no terminal and no Textual."""

from dataclasses import replace

from tfctl.output import Look
from tfctl.views.cells import paint_line
from tfctl.views.requests import render_requests
from tokenflow.wire import RequestsDocument, StatusDocument
from tokenflow_tui.header import header_lines


def render_frame(
    status: StatusDocument, requests: RequestsDocument, look: Look, *, use_ascii: bool = False
) -> list[str]:
    """The header, a blank line and the table."""
    if use_ascii:
        look = replace(look, unicode=False)
    lines = [paint_line(line, look, gap="  ") for line in header_lines(status, look)]
    table = render_requests(requests.requests, look) if requests.requests else ["no requests"]
    return [*lines, "", *table]

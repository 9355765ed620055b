"""An ack: a client says how much of its stream it has read. Checked here, so that the scheduler need not."""

import time
from typing import Annotated, Any

import msgspec

from tokenflow import link
from tokenflow.sglang.answers import INVALID_REQUEST
from tokenflow.sglang.readers import BadReaderError, capped, check_class, check_rate
from tokenflow.sglang.reporter import DeliveryReporter
from tokenflow.sglang.settings import PluginSettings
from tokenflow.sglang.stream_book import StreamBook, choice_of, owns
from tokenflow.sglang.streams import Choice, StreamContext

TOKEN_HEADER = "X-TokenFlow-Ack-Token"
NOT_FOUND = "not_found"
PERMISSION = "permission_error"
MAX_TOKENS = 2**53  # what every JSON library can say exactly


class RefusedError(Exception):
    """Answered in OpenAI's error shape."""

    def __init__(self, status: int, kind: str, code: str, text: str, parameter: str | None = None) -> None:
        super().__init__(text)
        self.status, self.kind, self.code, self.text, self.parameter = status, kind, code, text, parameter


class AckBody(msgspec.Struct, forbid_unknown_fields=True, rename={"class_": "class"}):
    """The body of an ack. `rate` and `class` are checked as those of a request are."""

    consumed_tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
    rate: Any = None
    class_: Any = None


class AckAnswer(msgspec.Struct):
    """What holds after an ack."""

    rid: str
    consumed_tokens: int
    delivered_tokens: int
    is_ended: bool


def find_owned(book: StreamBook, rid: str, token: str | None) -> tuple[StreamContext, Choice]:
    """The stream and the choice that a client means, and may touch. Raises RefusedError: 404, 403, 409."""
    stream = book.find(rid)
    if stream is None:
        raise RefusedError(
            404, INVALID_REQUEST, NOT_FOUND, f"there is no stream {rid[:64]!r}; it may have ended a while ago", "rid"
        )
    if token is None or not owns(stream, token):
        raise RefusedError(
            403,
            PERMISSION,
            "wrong_ack_token",
            f"that is not this stream's {TOKEN_HEADER}: it came in the header of that name with the response",
            TOKEN_HEADER,
        )
    choice = choice_of(stream, rid)
    if choice is None:
        raise RefusedError(
            409,
            INVALID_REQUEST,
            "several_choices",
            "this response has not one choice but several, or none yet: use the id in the chunks of the one you mean",
            "rid",
        )
    return stream, choice


def take_ack(
    book: StreamBook, settings: PluginSettings, reporter: DeliveryReporter, rid: str, token: str | None, body: bytes
) -> AckAnswer:
    """Carries one ack out. Late and repeated ones change nothing. Raises RefusedError."""
    stream, choice = find_owned(book, rid, token)
    if not choice.is_streamed:
        raise RefusedError(
            409, INVALID_REQUEST, "not_streamed", "this request was sent without `stream`: nobody reads along", "rid"
        )
    ack = _decode(body)
    try:
        rate_tok_s = None if ack.rate is None else check_rate("rate", ack.rate)
        reader_class = None if ack.class_ is None else _reader_class(ack.class_, settings)
    except BadReaderError as error:
        raise RefusedError(400, INVALID_REQUEST, "invalid_value", str(error), error.parameter) from error
    consumed_tokens = min(ack.consumed_tokens, choice.sent_tokens)
    if consumed_tokens >= choice.acked_tokens:
        choice.acked_tokens = consumed_tokens
        reporter.report_ack(link.Ack(choice.rid, consumed_tokens, time.monotonic(), rate_tok_s, reader_class))
    return AckAnswer(choice.rid, choice.acked_tokens, choice.sent_tokens, stream not in book.open)


def _decode(body: bytes) -> AckBody:
    try:
        return msgspec.json.decode(body, type=AckBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        parameter = "consumed_tokens" if "consumed_tokens" in str(error) else None
        raise RefusedError(
            400, INVALID_REQUEST, "invalid_value", f'an ack is {{"consumed_tokens": 120}}: {error}', parameter
        ) from error


def _reader_class(name: Any, settings: PluginSettings) -> link.ReaderClass:
    check_class("class", name, settings)
    kind = settings.classes[name]
    return link.ReaderClass(name, capped(kind.rate_tok_s, kind), kind.max_rate_tok_s)

"""Server-sent events, decoded from chunks of bytes as they come (WHATWG HTML, section 9.2.6)."""

from codecs import getincrementaldecoder

import msgspec


class ServerEvent(msgspec.Struct, frozen=True):
    """One dispatched event; `name` is None where the server gave none."""

    data: str
    name: str | None = None


class EventDecoder:
    """Takes any split of the byte stream: within a character, a line ending or an event.

    Bytes that are not UTF-8 become U+FFFD, as the standard says. An event without its closing empty line is
    dropped at the end of the stream, also as the standard says: it may be cut in half.
    """

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8-sig")(errors="replace").decode
        self._line = ""
        self._ends_in_cr = False
        self._data: list[str] = []
        self._name: str | None = None

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that `chunk` completes."""
        text = self._decode(chunk)
        if self._ends_in_cr and text:
            # The line ended with the CR; a LF that follows belongs to the same line ending.
            text = text.removeprefix("\n")
            self._ends_in_cr = False
        if text.endswith("\r"):
            self._ends_in_cr = True
        *lines, self._line = (self._line + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        events: list[ServerEvent] = []
        for line in lines:
            event = self._take(line)
            if event is not None:
                events.append(event)
        return events

    def _take(self, line: str) -> ServerEvent | None:
        if not line:
            event = ServerEvent("\n".join(self._data), self._name) if self._data else None
            self._data, self._name = [], None
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None  # comments, ids, retry times and unknown fields mean nothing here

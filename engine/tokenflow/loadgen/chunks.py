"""The JSON inside the events of an OpenAI stream, of either route, reduced to what is measured."""

from typing import Any

import msgspec

from tokenflow.loadgen.sse import ServerEvent

DONE = "[DONE]"


class MalformedChunkError(ValueError):
    """An event that is not what the API promises."""


class Chunk(msgspec.Struct, kw_only=True, frozen=True):
    """One event. `completion_tokens` is the stream's total so far, where the server says it."""

    text: str = ""
    finish_reason: str | None = None
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    error: str | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None
    prompt_tokens: int | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None
    message: str | None = None


_DECODER = msgspec.json.Decoder(_Event)


def parse_chunk(event: ServerEvent) -> Chunk:
    """Raises MalformedChunkError. Servers send errors in three shapes; all of them come out as `error`."""
    try:
        body = _DECODER.decode(event.data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise MalformedChunkError(f"not a chunk of an OpenAI stream: {error}: {event.data[:80]!r}") from error
    if body.error is not None:
        return Chunk(error=error_message(body.error))
    if body.object == "error" or event.name == "error":
        return Chunk(error=body.message or "the server sent an error event without a message")
    if body.choices is None and body.usage is None:
        raise MalformedChunkError(f"an event with neither choices nor usage: {event.data[:80]!r}")
    choice = body.choices[0] if body.choices else _Choice()
    delta = choice.delta or _Delta()
    usage = body.usage or _Usage()
    return Chunk(
        text=choice.text or (delta.reasoning_content or "") + (delta.content or ""),
        finish_reason=choice.finish_reason,
        completion_tokens=usage.completion_tokens,
        prompt_tokens=usage.prompt_tokens,
    )


def error_message(error: object) -> str:
    """The sentence in OpenAI's error object, or whatever else a server put there."""
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return str(error["message"])
    return str(error)

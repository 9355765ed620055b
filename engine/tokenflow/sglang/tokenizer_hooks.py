"""Hooks on SGLang's tokenizer manager: our request id and annotation in, token counts out."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Any

from tokenflow.sglang.annotation import Annotation, attach, attach_hidden
from tokenflow.sglang.frontend import Frontend
from tokenflow.sglang.readers import BATCH_READER
from tokenflow.sglang.streams import StreamContext, current_stream


class TokenizerHooks:
    """Bound to one `Frontend`; the methods have the signatures that SGLang's hook registry expects."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend

    async def around_generate(
        self, original: Callable[..., AsyncIterator[Any]], manager: Any, obj: Any, request: Any = None
    ) -> AsyncIterator[Any]:
        """AROUND generate_request: an async generator like the original."""
        stream = current_stream.get()
        if stream is not None and hasattr(obj, "sampling_params"):
            stream.begin(bool(getattr(obj, "stream", False)))
            stream.manager, stream.is_background = manager, bool(getattr(obj, "background", False))
            if not stream.route_mints_rid:
                _refuse_own_rid(obj)
                obj.rid = stream.claim_rid() if _is_single(obj) else None
        else:
            stream = None
        async with aclosing(original(manager, obj, request)) as outputs:  # type: ignore[type-var]
            async for output in outputs:
                if stream is not None and not self._frontend.guard.is_tripped:
                    self._note(stream, output)
                yield output

    def before_send_one(self, manager: Any, tokenized_obj: Any) -> None:
        """BEFORE _send_one_request."""
        self._annotate(manager, [tokenized_obj])

    def before_send_batch(self, manager: Any, tokenized_objs: Any) -> None:
        """BEFORE _send_batch_request."""
        self._annotate(manager, tokenized_objs)

    def _annotate(self, manager: Any, tokenized_objs: Iterable[Any]) -> None:
        stream = current_stream.get()
        if stream is None or self._frontend.guard.is_tripped:
            return
        try:
            for tokenized in tokenized_objs:
                if not hasattr(tokenized, "sampling_params"):
                    continue
                self._frontend.note_dispatch(stream, manager, tokenized.rid, bool(tokenized.stream))
                if stream.is_warm_up:
                    attach_hidden(tokenized.sampling_params)
                else:
                    parent_rid = None if tokenized.rid == stream.rid else stream.rid
                    # With n > 1 SGLang first runs the prompt alone, unstreamed: nobody reads that one.
                    reader = stream.reader if tokenized.stream else BATCH_READER
                    annotation = Annotation(reader, stream.arrival_s, parent_rid, bool(tokenized.stream))
                    attach(tokenized.sampling_params, annotation)
        except Exception as error:  # noqa: BLE001 - fail open: the request goes on unannotated
            self._frontend.guard.record("annotate", error, stream.rid)

    def _note(self, stream: StreamContext, output: Any) -> None:
        try:
            for one in output if isinstance(output, list) else (output,):
                meta = one["meta_info"]
                # Nobody is shown a model's reasoning as it is made, whatever becomes of it later.
                stream.note_made(meta["id"], meta["completion_tokens"] - (meta.get("reasoning_tokens") or 0))
        except Exception as error:  # noqa: BLE001 - fail open: the output is the client's, the count only ours
            self._frontend.guard.record("count made tokens", error, stream.rid)


def _refuse_own_rid(obj: Any) -> None:
    """Ids are minted by us: operators' actions and acks must not be open to guessing or clashes."""
    if obj.rid is not None:
        raise ValueError("'rid' cannot be chosen by the client; read it from the header X-TokenFlow-Request-Id")


def _is_single(obj: Any) -> bool:
    """Whether SGLang will run this as one request; else it mints an id for every choice itself."""
    if isinstance(getattr(obj, "text", None), list):
        return False
    input_ids = getattr(obj, "input_ids", None)
    if isinstance(input_ids, list) and input_ids and isinstance(input_ids[0], list):
        return False
    parameters = obj.sampling_params
    return not isinstance(parameters, list) and (parameters or {}).get("n", 1) == 1

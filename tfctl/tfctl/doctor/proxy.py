"""`tfctl doctor --url`: does something between here and the engine hold tokens back?

One short stream is asked for and the moments are looked at when its pieces come. A proxy that buffers hands out all of
them at once, at the end: the time to the first grows to nearly the whole, and the gaps fall to nothing. Where the
engine itself can be asked, the two are compared.
"""

import http.client
import json
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from tfctl.doctor.answer import failed, passed, skipped, warned
from tfctl.host_documents import Check

_TOKENS = 16
_LIMIT_S = 60.0
_LEAST_SPAN_S = 0.05
_BURST_RATIO = 0.1
"""Buffered: the pieces span less than this share of the stream's time, or of what the engine itself takes for them."""


@dataclass(frozen=True, slots=True)
class Timing:
    first_s: float  # from the request to the first piece
    span_s: float  # from the first piece to the last
    pieces: int
    headers: dict[str, str]


def check(url: str, engine_url: str | None, model: str | None) -> list[Check]:
    """`engine_url`: the engine of the daemon here, to compare with; None where there is none."""
    try:
        through = _measure(url, model)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return [failed("url", f"{url} does not stream: {error}", f"curl -N {url}/v1/models")]
    direct = None
    if engine_url is not None and engine_url.rstrip("/") != url.rstrip("/"):
        try:
            direct = _measure(engine_url, model)
        except (OSError, http.client.HTTPException, ValueError):
            direct = None
    return [judge(url, through, direct), _headers(url, through)]


def judge(url: str, through: Timing, direct: Timing | None) -> Check:
    """Pure."""
    told = f"{through.pieces} pieces over {through.span_s:.2f} s after {through.first_s:.2f} s"
    hint = "nginx: proxy_buffering off; other proxies: no buffering and no compression of text/event-stream"
    if through.pieces < 3:
        return skipped("url", f"{url}: only {through.pieces} pieces came, too few to tell", "a model that writes more")
    expected_s = through.first_s + through.span_s if direct is None else direct.span_s
    if direct is not None and direct.span_s < _LEAST_SPAN_S:
        return skipped("url", f"{told}; the engine itself is too fast to tell", "try again under load")
    if through.span_s < _BURST_RATIO * expected_s:
        beside = (
            "" if direct is None else f"; the engine itself: over {direct.span_s:.2f} s after {direct.first_s:.2f} s"
        )
        return failed("url", f"{url} holds tokens back: {told}{beside}", hint)
    return passed("url", f"{url}: {told}")


def _headers(url: str, timing: Timing) -> Check:
    missing = [name for name in ("x-accel-buffering", "x-tokenflow-request-id") if name not in timing.headers]
    if missing:
        message = f"{url} answers without {', '.join(missing)}: it is no engine of ours, or a proxy takes them out"
        return warned("url headers", message, "let the proxy pass X-TokenFlow-* and X-Accel-Buffering on")
    return passed("url headers", "the stream's headers come through")


def _measure(url: str, model: str | None) -> Timing:
    """Raises OSError, HTTPException or ValueError."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it is no http:// or https:// address")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=_LIMIT_S)
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    try:
        wanted = model or _first_model(connection, prefix)
        body = {"model": wanted, "stream": True, "max_tokens": _TOKENS, "ignore_eos": True}
        body["messages"] = [{"role": "user", "content": "Count from one to twenty."}]
        began_s = time.monotonic()
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        connection.request("POST", f"{prefix}/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"HTTP {response.status} {response.reason}")
        stamps_s = [time.monotonic() for line in response if line.startswith(b"data: {")]
    finally:
        connection.close()
    if not stamps_s:
        raise ValueError("no piece of a stream came")
    return Timing(
        first_s=stamps_s[0] - began_s,
        span_s=stamps_s[-1] - stamps_s[0],
        pieces=len(stamps_s),
        headers={name.lower(): value for name, value in response.getheaders()},
    )


def _first_model(connection: http.client.HTTPConnection, prefix: str) -> str:
    connection.request("GET", f"{prefix}/v1/models")
    response = connection.getresponse()
    text = response.read()
    if response.status != 200:
        raise ValueError(f"GET /v1/models: HTTP {response.status} {response.reason}")
    try:
        return str(json.loads(text)["data"][0]["id"])
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError("GET /v1/models names no model") from error

"""What must not leave the machine: keys, passwords, text of requests, the user's name in paths. Pure.

Of our own documents nothing of that kind is known to be in them; this is the second line. Of the engine's log, which is
SGLang's and may hold requests with `--log-requests`, only lines of known kinds are taken, and of errors the type alone.
"""

import re
from collections.abc import Iterable
from pathlib import Path

HIDDEN = "[redacted]"
_SECRET = (
    r"(?:[\w-]*?(?:api[_-]?key|admin[_-]?key|secret|passw(?:or)?d|authorization|credential)[\w-]*|(?:[\w-]+[_-])?token)"
)
_ASSIGNED = re.compile(rf"""(?ix)(["']?(?<![\w-]){_SECRET}(?![\w-])["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,}}\]]+)""")
_OPTION = re.compile(rf"""(?ix)(["']?--{_SECRET}(?![\w-])["']?(?:\s*,\s*|\s+|=))("[^"]*"|'[^']*'|[^\s,\]]+)""")
_URL_USER = re.compile(r"(\w+://)[^/\s:@]+:[^/\s@]+@")
_BEARER = re.compile(r"(?i)(bearer\s+)\S+")
_KEY_LIKE = re.compile(r"\b(?:sk|hf|ghp|gho|glpat)[-_][A-Za-z0-9_-]{16,}")

_STAMP = r"^\[[^\]]*\]\s*"
_KNOWN = re.compile(
    _STAMP + r"(?:Decode batch|Prefill batch|Load weight|KV Cache|Memory pool|Init torch|Init parallel|Capture |"
    r"Uvicorn running|The server is fired up|SIGQUIT|Subprocess |max_total_num_tokens|tokenflow: )"
)
_FRAME = re.compile(r'^\s+File "([^"]+)", line (\d+), in (\w+)')
_ERROR = re.compile(rf"(?:{_STAMP})?((?:\w+\.)*\w*(?:Error|Exception|Interrupt))(?::|$)")
_LINE_MOST = 300


def text(content: str, home: Path | None = None) -> str:
    """Values that look like secrets are replaced, and the home folder by `~`."""
    content = _URL_USER.sub(rf"\1{HIDDEN}@", content)
    content = _BEARER.sub(rf"\1{HIDDEN}", content)
    content = _OPTION.sub(lambda found: found.group(1) + _quoted_like(found.group(2)), content)
    content = _ASSIGNED.sub(lambda found: found.group(1) + _quoted_like(found.group(2)), content)
    content = _KEY_LIKE.sub(HIDDEN, content)
    if home is not None and home != Path("/"):
        content = content.replace(str(home), "~")
    return content


def _quoted_like(value: str) -> str:
    """Keeps the quotes, so that TOML and JSON stay readable. Numbers, booleans and nulls are no secrets."""
    if re.fullmatch(r"-?[\d.]+(?:e-?\d+)?|true|false|null|none|\"\"|''|\{.*|\[.*", value, re.IGNORECASE):
        return value
    quote = value[0] if value[0] in "\"'" else ""
    return f"{quote}{HIDDEN}{quote}"


def engine_lines(lines: Iterable[str]) -> list[str]:
    """Of an engine's log what is known to hold no text of requests."""
    found = []
    for line in lines:
        if _KNOWN.match(line):
            found.append(line.rstrip()[:_LINE_MOST])
        elif (frame := _FRAME.match(line)) is not None:
            found.append(f"  {Path(frame.group(1)).name}:{frame.group(2)} in {frame.group(3)}")
        elif (error := _ERROR.match(line)) is not None:
            found.append(f"{error.group(1)}: {HIDDEN}")
        elif line.startswith("Traceback "):
            found.append("Traceback")
    return found

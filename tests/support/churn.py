"""Many short requests of every kind, from one seed; and the check that each got its answer or one clear error."""

import asyncio
import json
import random
import re
import string
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import aiohttp

CONTEXT_TOKENS = 700  # of the engine that these requests are for; its KV pool has as many
REQUEST_LIMIT_S = 120.0
MAX_OPEN = 40  # requests that wait beyond that are not sent yet: a queue that only grows tests nothing more
PATTERN = "[a-z]{3,9}[0-9]{1,3}"
_WORDS = [word + ending for word in ("sea", "wind", "sail", "rope", "port") for ending in ("", "s", "ing", "ed")]


class Kind(StrEnum):
    """What is asked for."""

    PLAIN = "plain"
    ONE_TOKEN = "one_token"
    TWO_CHOICES = "two_choices"
    REGEX = "regex"
    NEAR_LIMIT = "near_limit"
    ABOVE_LIMIT = "above_limit"


class Outcome(StrEnum):
    """What came of it. LEFT: the client closed the connection, as planned."""

    COMPLETE = "complete"
    ABORTED = "aborted"
    REFUSED = "refused"
    LEFT = "left"
    WRONG = "wrong"


@dataclass
class Case:
    index: int
    kind: Kind
    arrival_s: float
    body: dict[str, Any]
    rate_tok_s: float | None
    leave_after_tokens: int | None = None
    leave_after_s: float | None = None

    @property
    def is_chat(self) -> bool:
        return "messages" in self.body


@dataclass
class Got:
    case: Case
    outcome: Outcome = Outcome.WRONG
    detail: str = ""
    rid: str | None = None
    texts: dict[int, str] = field(default_factory=dict)
    finish_reasons: dict[int, str] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    status: int | None = None


def cases(seed: int, count: int, model: str, arrivals_per_s: float) -> list[Case]:
    """The same for the same seed. Arrivals come in bursts, so that the queue fills and empties."""
    rng = random.Random(seed)
    made, now_s = [], 0.0
    for index in range(count):
        if rng.random() < 0.85:  # else at the same moment as the one before
            now_s += rng.expovariate(0.85 * arrivals_per_s)
        made.append(_case(rng, index, now_s, model))
    return made


def _case(rng: random.Random, index: int, arrival_s: float, model: str) -> Case:
    kind = rng.choices(list(Kind), weights=[62, 8, 8, 14, 4, 4])[0]
    max_tokens = rng.choice((2, 5, 13, 34, 55, 89))
    body: dict[str, Any] = {"model": model, "temperature": 0.0, "stream": rng.random() < 0.75, "ignore_eos": True}
    prompt_tokens = rng.choice((3, 12, 30, 60, 150))
    match kind:
        case Kind.ONE_TOKEN:
            max_tokens = 1
        case Kind.TWO_CHOICES:
            body["n"] = 2
        case Kind.REGEX:
            body |= {"regex": PATTERN, "ignore_eos": False}
            max_tokens = 24
        case Kind.NEAR_LIMIT:
            max_tokens = rng.randint(2, 12)
            prompt_tokens = CONTEXT_TOKENS - max_tokens - rng.choice((12, 20, 40, 90))
        case Kind.ABOVE_LIMIT:
            prompt_tokens = CONTEXT_TOKENS + rng.choice((1, 50, 2000))
    if kind in (Kind.PLAIN, Kind.REGEX) and rng.random() < 0.3:
        body["messages"] = [{"role": "user", "content": " ".join(rng.choices(_WORDS, k=prompt_tokens // 4 + 1))}]
    else:
        body["prompt"] = [rng.randint(100, 20_000) for _ in range(prompt_tokens)]
    body["max_tokens"] = max_tokens
    if body["stream"]:
        body["stream_options"] = {"include_usage": True}
    case = Case(index, kind, arrival_s, body, rng.choice((None, 2.0, 2.0, 5.0, 12.0, 60.0)) if body["stream"] else None)
    if kind is not Kind.ABOVE_LIMIT and rng.random() < 0.2:
        if body["stream"] and rng.random() < 0.6:
            case.leave_after_tokens = rng.randint(1, max_tokens)
        else:
            case.leave_after_s = rng.choice((0.0, 0.01, 0.05, 0.3, 1.0))
    return case


async def run_all(url: str, planned: list[Case]) -> list[Got]:
    timeout = aiohttp.ClientTimeout(total=REQUEST_LIMIT_S)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        begin_s = asyncio.get_running_loop().time()
        gate = asyncio.Semaphore(MAX_OPEN)

        async def one(case: Case) -> Got:
            await asyncio.sleep(case.arrival_s - (asyncio.get_running_loop().time() - begin_s))
            async with gate:
                return await _run(session, url, case)

        return list(await asyncio.gather(*(one(case) for case in planned)))


async def _run(session: aiohttp.ClientSession, url: str, case: Case) -> Got:
    got = Got(case)
    route = "chat/completions" if case.is_chat else "completions"
    headers = {} if case.rate_tok_s is None else {"X-TokenFlow-Rate": str(case.rate_tok_s)}
    try:
        async with asyncio.timeout(case.leave_after_s):
            async with session.post(f"{url}/v1/{route}", json=case.body, headers=headers) as response:
                got.status = response.status
                got.rid = response.headers.get("X-TokenFlow-Request-Id")
                if case.body["stream"] and response.status == 200:
                    if not await _read_stream(response, got):
                        got.outcome = Outcome.LEFT
                        return got
                else:
                    _take_document(json.loads(await response.read()), got)
    except TimeoutError:
        if case.leave_after_s is None:
            got.detail = f"nothing for {REQUEST_LIMIT_S} s"
            return got
        got.outcome = Outcome.LEFT
        return got
    except (aiohttp.ClientError, OSError, ValueError) as error:
        got.detail = f"{type(error).__name__}: {error}"
        return got
    _judge(got)
    return got


async def _read_stream(response: aiohttp.ClientResponse, got: Got) -> bool:
    """False when the client left before the end, as planned."""
    leave_after, pieces, is_done = got.case.leave_after_tokens, 0, False
    async for line in response.content:
        if not line.startswith(b"data: "):
            continue
        data = line[6:].strip()
        if data == b"[DONE]":
            is_done = True
            continue
        document = json.loads(data)
        _take_document(document, got)
        pieces += sum(1 for _ in document.get("choices", ()))
        if leave_after is not None and pieces >= leave_after:
            return False
    if not is_done:
        got.detail = "the stream ended without [DONE]"
    return True


def _take_document(document: dict[str, Any], got: Got) -> None:
    if "error" in document or document.get("object") == "error":
        error = document.get("error", document)
        got.error = str(error.get("message", error)) if isinstance(error, dict) else str(error)
        return
    for choice in document.get("choices", ()):
        part = choice.get("delta") or choice.get("message") or choice
        text = part.get("content") or part.get("text") or ""
        got.texts[choice["index"]] = got.texts.get(choice["index"], "") + text
        if choice.get("finish_reason"):
            got.finish_reasons[choice["index"]] = choice["finish_reason"]
    if document.get("usage"):
        got.usage = document["usage"]


def _judge(got: Got) -> None:
    """Sets the outcome: full answer, refusal, abort, or what is wrong."""
    case = got.case
    if got.error is not None:
        is_abort = "abort" in got.error.lower()
        if case.kind is Kind.ABOVE_LIMIT and got.status == 400:
            got.outcome = Outcome.REFUSED
        elif is_abort:
            got.outcome = Outcome.ABORTED
        else:
            got.detail = f"HTTP {got.status}: {got.error}"
        return
    if got.detail:
        return
    if "abort" in got.finish_reasons.values():
        got.outcome = Outcome.ABORTED
        return
    choices = case.body.get("n", 1)
    made = got.usage.get("completion_tokens")
    if case.kind is Kind.REGEX:
        [reason] = got.finish_reasons.values()
        if reason == "stop" and not re.fullmatch(PATTERN, got.texts[0].strip()):
            got.detail = f"{got.texts[0]!r} does not match"
            return
        if not set(got.texts[0]) <= set(string.ascii_lowercase + string.digits):
            got.detail = f"{got.texts[0]!r} leaves the pattern"
            return
    elif set(got.finish_reasons.values()) != {"length"} or len(got.finish_reasons) != choices:
        got.detail = f"finish reasons {got.finish_reasons}"
        return
    elif made != choices * case.body["max_tokens"]:
        got.detail = f"{made} tokens of {choices} x {case.body['max_tokens']}"
        return
    if case.kind is Kind.ABOVE_LIMIT:
        got.detail = "it was not refused"
        return
    got.outcome = Outcome.COMPLETE


def summary(results: list[Got]) -> Counter[str]:
    return Counter(f"{got.case.kind}:{got.outcome}" for got in results)

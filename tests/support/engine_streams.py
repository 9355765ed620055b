"""Streams on the real engine, as its tests drive them: bursts and their texts, and waiting for a state."""

import asyncio
import time
import urllib.error
import urllib.request

from engine_rig import Rig

from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import StreamPlan, Workload, plan_streams
from tokenflow.loadgen.run import LoadRun

# Two layers of made-up weights: the same engine and the same KV path, several times faster. What it says is nonsense,
# but at temperature 0 always the same nonsense.
FAST = ("--load-format", "dummy", "--json-model-override-args", '{"num_hidden_layers": 2}')


def endpoint(rig) -> Endpoint:
    return Endpoint(url=rig.url, model=rig.model, extra_body={"ignore_eos": True})


def burst(seed: int, count: int = 10, tokens: int = 60) -> list[StreamPlan]:
    workload = Workload(
        request_count=count,
        arrivals=f"burst:{count}",
        rates="2",
        output_tokens=f"fixed:{tokens}",
        seed=seed,
    )
    return plan_streams(workload)


def texts_of(rig, plans: list[StreamPlan]) -> list[str]:
    result = asyncio.run(LoadRun(endpoint(rig), plans, keep_text=True).execute())
    assert [stream.error for stream in result.streams] == [None] * len(plans)
    assert [stream.token_count for stream in result.streams] == [plan.max_tokens for plan in plans]
    return [str(stream.text) for stream in result.streams]


def alone(plan: StreamPlan) -> StreamPlan:
    return StreamPlan(
        index=0, arrival_s=0.0, prompt=plan.prompt, rate_tok_s=plan.rate_tok_s, max_tokens=plan.max_tokens
    )


def flush_cache(rig) -> None:
    """Empties SGLang's radix tree, so that nothing of an earlier run is found in it."""
    headers = {"Authorization": f"Bearer {rig.admin_key}"}
    request = urllib.request.Request(f"{rig.url}/flush_cache", b"", headers, method="POST")
    deadline_s = time.monotonic() + 30.0
    while not was_taken(request):
        assert time.monotonic() < deadline_s, "the engine did not become idle"
        time.sleep(0.2)


def was_taken(request: urllib.request.Request) -> bool:
    """False where the engine refuses, as it does with a cache flush while anything is under way."""
    try:
        urllib.request.urlopen(request, timeout=60).close()
    except urllib.error.HTTPError:
        return False
    return True


def wait_until_idle(rig) -> None:
    deadline_s = time.monotonic() + 60.0
    while rig.rows():
        assert time.monotonic() < deadline_s, rig.rows()
        time.sleep(0.2)


def live(rig: Rig, state: str, *, but: tuple[str, ...] = (), tokens: int = 0) -> str:
    """The rid of a live request in that state, as soon as there is one."""
    deadline_s = time.monotonic() + 60.0
    while time.monotonic() < deadline_s:
        for rid, row in rig.rows().items():
            if rid not in but and row["state"] == state and row["generated_tokens"] >= tokens:
                return rid
        time.sleep(0.05)
    raise AssertionError(f"no request became {state}: {rig.rows()}")

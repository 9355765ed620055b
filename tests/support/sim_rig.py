"""A small simulated GPU and the ways to run it, for the simulator's tests."""

from dataclasses import replace

from tokenflow.policy.states import Variant
from tokenflow.policy.tunables import Tunables
from tokenflow.sim.engine import SimEngine
from tokenflow.sim.performance import LinearModel, Link
from tokenflow.sim.policy_scheduler import PolicyScheduler
from tokenflow.sim.settings import EngineSettings
from tokenflow.sim.workload import SimRequest

LINK = Link(d2h_bytes_s=1e10, h2d_bytes_s=1e10, fixed_s=1e-4, h2d_contention_ratio=0.5)


def small_gpu(**changes):
    """10 ms + 0.2 ms a stream; 0.1 ms a prompt token; 100 kB of KV a token: 100,000 tokens a second over the link."""
    model = LinearModel(
        gpu="small",
        model="toy",
        source="invented for a test",
        kv_bytes_per_token=1e5,
        link=LINK,
        kv_token_count=4096,
        step_fixed_s=0.01,
        stream_s=2e-4,
        kv_token_s=1e-7,
        piece_s=1e-4,
        new_token_s=1e-4,
        pair_s=1e-9,
        prefill_fixed_s=0.012,
    )
    return replace(model, **changes)


def burst(count, *, prompt=64, output=100, rate=10.0, gap_s=0.0, **more):
    return [SimRequest(index * gap_s, prompt, output, rate, **more) for index in range(count)]


def simulated(requests, *, scheduler=None, variant="tokenflow", gpu=None, slots=8, kv=4096, host=100_000, **more):
    """The engine after its run. `more`: settings and what SimEngine takes."""
    settings = {name: more.pop(name) for name in ("page_tokens", "step_overhead_s", "load_overlap") if name in more}
    tunables = replace(Tunables(), variant=Variant(variant), **more.pop("tunables", {}))
    engine = SimEngine(
        scheduler or PolicyScheduler(tunables),
        gpu or small_gpu(),
        EngineSettings(slots, kv, host, **settings),
        **more,
    )
    engine.run(requests)
    return engine


def by_rid(engine):
    return {record.rid: record for record in engine.clerk.records}

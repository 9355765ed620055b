"""What the options of `tfctl simulate` come to. Everything is checked before anything runs."""

from dataclasses import dataclass, replace

from tfctl.simulate.options import SimulateOptions
from tokenflow.errors import UsageError
from tokenflow.loadgen.arrivals import Arrivals, Recorded, parse_arrivals
from tokenflow.policy.states import Mode
from tokenflow.policy.tunables import Tunables, check
from tokenflow.quality.goodput import GoodputLimits
from tokenflow.sim.calibration import read_calibration
from tokenflow.sim.document import SimulatedEngine, SimulatedWorkload
from tokenflow.sim.experiment import Setup
from tokenflow.sim.models import load_model
from tokenflow.sim.performance import Link, PerformanceModel
from tokenflow.sim.policies import make_scheduler
from tokenflow.sim.settings import EngineSettings
from tokenflow.sim.workloads import WorkloadSpec, make_requests

_USUAL_REQUESTS = 300
_USUAL_INPUT, _USUAL_OUTPUT = "normal:512", "normal:1024"
_USUAL_MEM_FRACTION = 0.88
_TRACE = "trace"
_GB = 1e9


@dataclass(frozen=True, slots=True)
class SimulatePlan:
    """The set-up, and how the documents describe it."""

    setup: Setup
    engine: SimulatedEngine
    workload: SimulatedWorkload
    tunables: dict[str, str]


def simulate_plan(options: SimulateOptions) -> SimulatePlan:
    """Raises UsageError for what makes no sense, ConfigurationError for a file that does not."""
    if options.calibrate is None:
        performance: PerformanceModel = load_model(options.gpu, options.model)
    else:
        performance = read_calibration(options.calibrate)
    changes = _for_so_many(options.max_running) | _changes(options.tune)
    tunables, problems = check(changes, replace(Tunables(), mode=Mode.ENFORCE))
    if problems:
        raise UsageError("; ".join(one.message for one in problems), hint="tfctl tune lists them", field="tune")
    for policy in options.policies:
        make_scheduler(policy, tunables)
    spec = _workload(options)
    first = make_requests(spec, options.seeds[0])  # what is wrong with the workload shows before the first run
    link = _link(options, performance.link)
    settings = EngineSettings(
        slot_count=options.max_running,
        kv_tokens=_kv_tokens(options, performance),
        host_tokens=int(options.host_gb * _GB / (performance.kv_bytes_per_token * performance.gpu_count)),
        page_tokens=options.page_tokens,
        step_overhead_s=options.step_overhead_ms / 1000.0,
        load_overlap=options.overlap,
    )
    setup = Setup(
        performance=performance,
        settings=settings,
        requests_of=lambda seed: first if seed == options.seeds[0] else make_requests(spec, seed),
        link=link,
        tunables=tunables,
        limits=_limits(options.goodput),
        chunk_tokens=options.chunk_tokens,
        decision_pause_s=options.decision_pause_ms / 1000.0,
        has_mixed_steps=options.has_mixed_steps,
    )
    workload = SimulatedWorkload(
        arrivals=spec.arrivals,
        input_tokens=spec.input_tokens,
        output_tokens=spec.output_tokens,
        rates=spec.rates,
        speedup=spec.speedup,
        max_tokens=spec.max_tokens,
    )
    return SimulatePlan(setup, _engine(setup), workload, {key: str(value) for key, value in changes.items()})


def _for_so_many(slot_count: int) -> dict[str, object]:
    """What the built-in profiles of large GPUs change: the default cap suits a few dozen slots."""
    per_s = 2 * slot_count
    return {"max_swaps_per_s": str(per_s)} if per_s > Tunables().max_swaps_per_s else {}


def _changes(texts: tuple[str, ...]) -> dict[str, object]:
    changes: dict[str, object] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise UsageError(f"{text!r} is not KEY=VALUE", hint="such as --tune quantum_s=2", field="tune")
        if key in ("mode", "variant"):
            raise UsageError(f"{key} is not tuned here", hint="--policy says who decides", field="tune")
        changes[key] = value
    return changes


def _workload(options: SimulateOptions) -> WorkloadSpec:
    arrivals: Arrivals = parse_arrivals(options.arrivals, speedup=options.speedup)
    is_traced = isinstance(arrivals, Recorded)
    return WorkloadSpec(
        arrivals=options.arrivals,
        input_tokens=options.input_tokens or (_TRACE if is_traced else _USUAL_INPUT),
        output_tokens=options.output_tokens or (_TRACE if is_traced else _USUAL_OUTPUT),
        request_count=options.request_count or arrivals.usual_count or _USUAL_REQUESTS,
        rates=options.rates,
        speedup=options.speedup,
        max_tokens=options.max_tokens,
    )


def _kv_tokens(options: SimulateOptions, performance: PerformanceModel) -> int:
    if options.kv_tokens is not None:
        if options.mem_fraction is not None:
            raise UsageError("both say how much KV memory there is", hint="leave one of the two out", field="kv-tokens")
        return options.kv_tokens
    usual = _USUAL_MEM_FRACTION if options.calibrate is None else 1.0  # a profile names the whole pool
    fraction = options.mem_fraction if options.mem_fraction is not None else usual
    tokens = performance.kv_tokens(fraction)
    if tokens < 1:
        raise UsageError(
            f"{performance.model} does not fit into {fraction:g} of the memory of {performance.gpu}",
            hint="give it more: --mem-fraction 0.9; or name the KV memory itself: --kv-tokens N",
            field="mem-fraction",
        )
    return tokens


def _link(options: SimulateOptions, link: Link) -> Link:
    if options.link_gbs is not None:
        link = replace(link, d2h_bytes_s=options.link_gbs * _GB, h2d_bytes_s=options.link_gbs * _GB)
    if options.interference_ratio is not None:
        link = replace(link, interference_ratio=options.interference_ratio)
    return link


def _limits(text: str | None) -> GoodputLimits:
    if text is None:
        return GoodputLimits()
    try:
        return GoodputLimits.parse(text)
    except ValueError as error:
        raise UsageError(str(error), hint="such as --goodput ttft:500,tbt:200", field="goodput") from None


def _engine(setup: Setup) -> SimulatedEngine:
    performance, settings, link = setup.performance, setup.settings, setup.link
    return SimulatedEngine(
        gpu=performance.gpu,
        model=performance.model,
        performance_source=performance.source,
        kv_tokens=settings.kv_tokens,
        host_tokens=settings.host_tokens,
        page_tokens=settings.page_tokens,
        max_running=settings.slot_count,
        step_overhead_s=settings.step_overhead_s,
        load_overlap=settings.load_overlap.value,
        decision_pause_s=setup.decision_pause_s,
        has_mixed_steps=setup.has_mixed_steps,
        d2h_bytes_s=link.d2h_bytes_s,
        h2d_bytes_s=link.h2d_bytes_s,
        h2d_contention_ratio=link.h2d_contention_ratio,
        interference_ratio=link.interference_ratio,
    )

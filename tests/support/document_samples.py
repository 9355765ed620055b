"""Documents as a daemon would send them, in every state of the engine, with nothing in them that changes."""

from tokenflow.events import EventKind, EventRow
from tokenflow.policy.explanation import explain_numbers
from tokenflow.policy.states import Mode, RateSource, Reason, RequestState, Variant
from tokenflow.policy.tunables import Tunables, plain, specs
from tokenflow.tuning import ExplainDocument, Origin, TunableRow, TunablesDocument
from tokenflow.version import __version__
from tokenflow.wire import (
    API_VERSION,
    Alarm,
    Capacity,
    DaemonInfo,
    EngineInfo,
    EngineState,
    Latency,
    PluginState,
    PolicyInfo,
    Quality,
    RequestRow,
    StatusDocument,
    Tail,
    Transfers,
    schema_name,
)

STAMP = "2026-01-02T03:04:05.678Z"
ALIVE = (EngineState.SERVING, EngineState.BUSY, EngineState.DRAINING, EngineState.WEDGED)


def fixed(document):
    """Stamped with a time that never changes, for golden files."""
    document.schema = schema_name(type(document))
    document.generated_at = STAMP
    return document


def status_document(state: EngineState, socket: str = "/run/tokenflow/control.sock") -> StatusDocument:
    alive = state in ALIVE
    return fixed(
        StatusDocument(
            daemon=DaemonInfo(version=__version__, api=API_VERSION, pid=2**22 + 1, uptime_s=185.0, socket=socket),
            engine=EngineInfo(
                state=state,
                reason={
                    EngineState.FAILED: "scheduler process 123 was killed (signal 9)",
                    EngineState.WEDGED: "work is present and no step has completed for 64 s",
                }.get(state),
                progress="loading weights" if state is EngineState.STARTING else None,
                progress_ratio=0.41 if state is EngineState.STARTING else None,
                url="http://127.0.0.1:30000" if alive else None,
                pid=4711 if alive else None,
                version="0.5.23" if alive else None,
                plugin=PluginState.ACTIVE if alive else PluginState.ABSENT,
                model=None if state is EngineState.STOPPED else "SmolLM2-135M-Instruct",
                profile=None if state is EngineState.STOPPED else "demo-cpu",
                uptime_s=125.4 if alive else None,
                step_count=1234 if alive else None,
                step_age_s=(64.0 if state is EngineState.WEDGED else 0.031) if alive else None,
            ),
            policy=PolicyInfo(
                mode=Mode.OBSERVE if alive else None, variant=Variant.TOKENFLOW if alive else None, revision=3
            ),
            capacity=Capacity(
                capacity_tok_s=62.0, demand_tok_s=48.5, headroom_ratio=0.22, running_count=3, waiting_count=1
            )
            if alive
            else Capacity(),
            transfers=Transfers(),
            latency=Latency(),
            quality=Quality(ttft_s=Tail(p50=0.41, p99=1.23, count=40), stall_s_total=0.3, raw_tok_s=57.2)
            if alive
            else Quality(),
            alarms=[Alarm(kind="stalls", message="1 stream is stalled", hint="see which: tfctl ps")]
            if state is EngineState.BUSY
            else [],
        )
    )


def request_rows() -> list[RequestRow]:
    def row(rid: str, state: RequestState, **fields) -> RequestRow:
        base = {
            "class_": "reading",
            "rate_tok_s": 6.0,
            "rate_source": RateSource.DEFAULT,
            "prompt_tokens": 12,
            "generated_tokens": 0,
            "delivered_tokens": 0,
            "consumed_tokens": 0.0,
            "unread_tokens": None,
            "runway_s": None,
        }
        return RequestRow(rid=rid, state=state, **{**base, **fields})

    return [
        row(
            "tf-00000000000000a1",
            RequestState.RUNNING,
            rate_tok_s=12.5,
            rate_source=RateSource.HEADER,
            generated_tokens=40,
            delivered_tokens=40,
            consumed_tokens=40.0,
            unread_tokens=0,
            runway_s=0.0,
            stall_s=1.25,
            stall_count=2,
            ttft_s=0.412,
            age_s=4.5,
            reason=Reason.RUNNING_STARVING,
        ),
        row(
            "tf-00000000000000b2",
            RequestState.RUNNING,
            generated_tokens=96,
            delivered_tokens=95,
            consumed_tokens=76.2,
            unread_tokens=19,
            runway_s=3.3,
            ttft_s=0.06,
            age_s=13.2,
        ),
        row("tf-00000000000000c3", RequestState.WAITING, class_="listening", age_s=0.9, unread_tokens=0, runway_s=0.0),
        row(
            "tf-00000000000000d4",
            RequestState.RUNNING,
            class_="batch",
            rate_tok_s=None,
            generated_tokens=2048,
            ttft_s=1.9,
            age_s=3723.0,
        ),
    ]


def tunables_document(
    in_force: Tunables | None, tuned: tuple[str, ...] = (), profile: tuple[str, ...] = ("mode",), revision: int = 0
) -> TunablesDocument:
    def origin(key: str) -> Origin:
        if key in tuned:
            return Origin.TUNED
        return Origin.PROFILE if key in profile else Origin.DEFAULT

    values, defaults = plain(in_force or Tunables()), plain(Tunables())
    rows = [
        TunableRow(
            key=spec.key,
            value=values[spec.key] if in_force else None,
            default=defaults[spec.key],
            minimum=spec.minimum,
            maximum=spec.maximum,
            choices=list(spec.choices),
            origin=origin(spec.key) if in_force else None,
            text=spec.text,
        )
        for spec in specs()
    ]
    return fixed(TunablesDocument(revision=revision, tunables=rows))


def event_rows() -> list[EventRow]:
    rid, who = "tf-00000000000000a1", "uid=1000 pid=4711"
    paused = {"action": "pause_keep", "cause": "operator", "runway_s": 2.5, "kv_tokens": 96, "evict_bytes": 368640}
    resumed = {"how": "load", "cached_tokens": 96, "recomputed_tokens": 0, "load_bytes": 4423680, "paused_s": 3.25}
    parts = [
        (EventKind.ENGINE_STARTED, None, None, who, {"profile": "demo-cpu", "pid": 4711}),
        (EventKind.HELD, rid, None, who, {"state": "running"}),
        (EventKind.PREEMPTED, rid, "preempted_operator", None, {**paused, "required_runway_s": None}),
        (EventKind.RESUMED, rid, None, None, resumed),
        (EventKind.FAULT, None, "decide: KeyError: 'x'", None, {"fault_count": 1}),
    ]
    return [
        EventRow(sequence=number, at=STAMP, kind=kind, rid=rid, reason=reason, who=who, terms=terms)
        for number, (kind, rid, reason, who, terms) in enumerate(parts, 1)
    ]


def explain_document() -> ExplainDocument:
    """Of the first row: its reader is dry, so it may not be paused."""
    found = explain_numbers(0, 12.5, evict_s=0.08, load_s=0.22, schedule_s=0.02, safety_factor=1.5)
    return fixed(
        ExplainDocument(
            rid="tf-00000000000000a1",
            state="running",
            reason="running_starving",
            runway_s=found.runway_s,
            required_runway_s=found.required_runway_s,
            required_tokens=found.required_tokens,
            preemptible=found.preemptible,
            terms=found.terms,
        )
    )

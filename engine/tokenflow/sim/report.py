"""From a finished run to its row and lines."""

from collections.abc import Iterator

import numpy as np

from tokenflow.policy.plan import Plan
from tokenflow.quality.summary import combine
from tokenflow.sim.document import DecisionLine, RequestLine, SimRun, TtftSpread
from tokenflow.sim.experiment import Outcome
from tokenflow.sim.records import RequestRecord
from tokenflow.sim.scheduler import Look

_DIGITS = 6


def run_row(outcome: Outcome, *, has_timing: bool = False) -> SimRun:
    """The run's row. Figures have six decimals, so that a document does not depend on the last bit of a sum."""
    records = outcome.records
    quality = combine([record.figures for record in records])
    tpots = [tpot for record in records if (tpot := tpot_s(record)) is not None]
    started_s = min((record.figures.arrival_s for record in records), default=0.0)
    ratio = outcome.demand_max_tok_s / outcome.capacity_tok_s if outcome.capacity_tok_s > 0 else 0.0
    return SimRun(
        policy=outcome.policy,
        seed=outcome.seed,
        request_count=len(records),
        completed_count=sum(not record.is_aborted for record in records),
        aborted_count=sum(record.is_aborted for record in records) - outcome.rejected_count,
        rejected_count=outcome.rejected_count,
        ttft_s=TtftSpread(
            mean=_rounded(quality.ttft_mean_s), p50=_rounded(quality.ttft_p50_s), p99=_rounded(quality.ttft_p99_s)
        ),
        raw_tok_s=_figure(quality.raw_tok_s),
        effective_tok_s=_figure(quality.effective_tok_s),
        effective_tok_s_author=_figure(quality.effective_tok_s_author),
        qos=_figure(quality.qos),
        qoe_mean=_rounded(quality.qoe_mean),
        stall_s_total=_figure(quality.stall_s_total),
        stall_count=quality.stall_count,
        stalled_request_count=sum(record.figures.stall_count > 0 for record in records),
        max_idle_s_p99=_rounded(quality.max_idle_s_p99),
        goodput_ratio=_figure(quality.goodput_ratio),
        tpot_s_mean=_rounded(float(np.mean(tpots)) if tpots else None),
        preemption_count=outcome.counts.pause_count,
        forced_preemption_count=outcome.counts.forced_count,
        switch_bytes_mean=_figure(sum(record.switch_bytes for record in records) / max(len(records), 1)),
        load_count=outcome.counts.load_count,
        recompute_count=outcome.counts.recompute_count,
        recomputed_tokens=outcome.counts.recomputed_tokens,
        makespan_s=_figure(outcome.end_s - started_s),
        capacity_tok_s=_figure(outcome.capacity_tok_s),
        demand_ratio_max=_figure(ratio),
        decision_count=outcome.decision_count,
        wall_s=_rounded(outcome.wall_s) if has_timing else None,
        speed_ratio=_rounded(outcome.end_s / outcome.wall_s) if has_timing and outcome.wall_s > 0 else None,
    )


def tpot_s(record: RequestRecord) -> float | None:
    """Mean seconds of a visible token after the first. None for fewer than two."""
    figures = record.figures
    if figures.token_count < 2 or figures.end_s is None or figures.ttft_s is None:
        return None
    return (figures.end_s - figures.arrival_s - figures.ttft_s) / (figures.token_count - 1)


def request_lines(outcome: Outcome) -> Iterator[RequestLine]:
    """In order of arrival."""
    for record in sorted(outcome.records, key=lambda one: one.rid):
        figures = record.figures
        yield RequestLine(
            policy=outcome.policy,
            seed=outcome.seed,
            rid=record.rid,
            arrival_s=_figure(figures.arrival_s),
            prompt_tokens=record.prompt_tokens,
            output_tokens=record.asked_tokens,
            hidden_tokens=record.hidden_tokens,
            made_tokens=record.made_tokens,
            rate_tok_s=record.rate_tok_s,
            ttft_s=_rounded(figures.ttft_s),
            end_s=_rounded(figures.end_s),
            effective_tokens=_figure(figures.effective_tokens),
            qoe=_rounded(figures.qoe),
            stall_s=_figure(figures.stall_s),
            stall_count=figures.stall_count,
            max_idle_s=_rounded(figures.max_idle_s),
            is_good=figures.is_good,
            is_aborted=record.is_aborted,
            preemption_count=record.pause_count,
            recompute_count=record.recompute_count,
            switch_bytes=record.switch_bytes,
        )


def decision_lines(policy: str, seed: int, now_s: float, look: Look, plan: Plan) -> Iterator[DecisionLine]:
    """What one plan changes, pauses first."""
    rids = look.view.rids
    for decision in plan.decisions:
        partner = decision.partner_row
        yield DecisionLine(
            policy=policy,
            seed=seed,
            time_s=_figure(now_s),
            rid=decision.rid,
            action=decision.action,
            cause=decision.cause,
            reason=decision.reason,
            urgency_s=_rounded(decision.urgency_s),
            runway_s=_rounded(decision.runway_s),
            required_runway_s=_rounded(decision.required_runway_s),
            benefit_s=_rounded(decision.benefit_s),
            partner_rid=None if partner is None else rids[partner],
            is_overloaded=plan.is_overloaded,
        )


def _figure(value: float) -> float:
    return round(float(value), _DIGITS)


def _rounded(value: float | None) -> float | None:
    """None for what is not a finite number too: JSON has none."""
    return None if value is None or not np.isfinite(value) else _figure(value)

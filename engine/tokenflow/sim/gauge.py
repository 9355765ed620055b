"""The engine's own figures as the policy gets them: measured by the same meters as in the live engine."""

from tokenflow.policy.capacity import StepTimeFit
from tokenflow.policy.costs import Costs
from tokenflow.policy.estimator import CostEstimator
from tokenflow.policy.step_meter import StepMeter
from tokenflow.policy.view import LOADING, PREEMPTED, RUNNING, EngineView
from tokenflow.sim.performance import Link, PerformanceModel, StepWork
from tokenflow.sim.scheduler import StepStyle
from tokenflow.sim.state import EngineState
from tokenflow.sim.transfers import Direction

TAIL_QUANTILE = 0.99
_PROMPT_TOKENS = 512  # of the prompt that prior prefill costs are taken from
_BATCH = 32


class Gauge:
    """Meters, and the EngineView of a moment. `tail_quantile` is the tunable of that name."""

    def __init__(self, performance: PerformanceModel, link: Link, tail_quantile: float = TAIL_QUANTILE) -> None:
        self.costs = CostEstimator(prior_costs(performance, link))
        self.meter = StepMeter(self.costs, StepTimeFit(prior_step(performance)))
        self.capacity_tok_s: float | None = None
        self._tail_quantile = tail_quantile

    def copied(self, direction: Direction, now_s: float, byte_count: float, service_s: float) -> None:
        """A copy has ended."""
        observe = self.costs.observe_evict if direction is Direction.D2H else self.costs.observe_load
        observe(now_s, byte_count, service_s)

    def engine_view(self, state: EngineState) -> EngineView:
        """As `PolicyDriver` builds it. The columns are of this moment."""
        streams, memory, transfers = state.streams, state.memory, state.transfers
        codes = streams.column("state")
        holders = int(((codes >= RUNNING) & (codes <= LOADING)).sum())
        mean_context = float(streams.column("context_tokens").mean()) if len(streams) else 0.0
        slots = state.settings.slot_count
        self.capacity_tok_s = self.meter.capacity_tok_s(slots, memory.kv_total_tokens, mean_context)
        return EngineView(
            now_s=state.now_s,
            slot_count=slots,
            slots_free=max(slots - holders, 0),
            kv_total_tokens=memory.kv_total_tokens,
            kv_free_tokens=memory.kv_free_tokens,
            page_tokens=memory.page_tokens,
            kv_bytes_per_token=state.performance.kv_bytes_per_token if state.rules.uses_host else 0.0,
            host_total_tokens=memory.host_total_tokens,
            host_free_tokens=memory.host_free_tokens,
            d2h_backlog_bytes=transfers.backlog_bytes(Direction.D2H),
            h2d_backlog_bytes=transfers.backlog_bytes(Direction.H2D),
            step_s=self.meter.step_s(holders, holders * mean_context),
            capacity_tok_s=self.capacity_tok_s,
            stream_limit_tok_s=1.0 / self.meter.step_s(1, mean_context) if self.capacity_tok_s else None,
            has_mixed_steps=state.rules.style is StepStyle.MIXED,
            costs=self.costs.costs(state.now_s, self._tail_quantile, mean_context),
        )

    def paused_count(self, state: EngineState) -> int:
        return int((state.streams.column("state") == PREEMPTED).sum())


def prior_costs(performance: PerformanceModel, link: Link) -> Costs:
    """What a profile measured on this GPU would say."""
    one, two = (_prefill_s(performance, tokens) for tokens in (_PROMPT_TOKENS, 2 * _PROMPT_TOKENS))
    per_token_s = max((two - one) / _PROMPT_TOKENS, 0.0)
    return Costs(
        evict_fixed_s=link.fixed_s,
        load_fixed_s=link.fixed_s,
        d2h_bytes_s=link.d2h_bytes_s,
        h2d_bytes_s=link.h2d_bytes_s * link.h2d_contention_ratio,
        schedule_s=one,
        prefill_fixed_s=max(one - per_token_s * _PROMPT_TOKENS, 0.0),
        prefill_s_per_token=per_token_s,
    )


def prior_step(performance: PerformanceModel) -> tuple[float, float, float]:
    """c0, c1, c2 of the decode step, from three points of the model."""
    context = 1024.0

    def at(batch: int, tokens: float) -> float:
        return performance.step_s(StepWork(decode_batch=batch, decode_kv_tokens=tokens))

    low, more_tokens, larger = at(1, context), at(1, _BATCH * context), at(_BATCH, _BATCH * context)
    token_s = max((more_tokens - low) / ((_BATCH - 1) * context), 0.0)
    stream_s = max((larger - more_tokens) / (_BATCH - 1), 0.0)
    return max(low - stream_s - token_s * context, 0.0), stream_s, token_s


def _prefill_s(performance: PerformanceModel, tokens: int) -> float:
    work = StepWork(piece_count=1, new_tokens=tokens, pair_count=tokens * (tokens + 1) / 2)
    return performance.step_s(work)

"""The text of a fitted file."""

from pathlib import Path

from perf_tables import Target
from tokenflow.sim.models.fit import Residual
from tokenflow.sim.models.formula import StepFormula
from tokenflow.sim.models.ramp import Ramp

DATA = Path(__file__).resolve().parents[1] / "engine" / "tokenflow" / "sim" / "models" / "data"
_DIGITS = 4  # significant ones: far below the error of the fit


def target_path(target: Target) -> Path:
    """Where a target's file lies."""
    return DATA / f"{target.gpu}_{target.model}.toml"


def rounded(formula: StepFormula) -> StepFormula:
    """The formula with the digits that a file keeps."""
    return StepFormula(
        fixed_s=_short(formula.fixed_s),
        prefill_fixed_s=_short(formula.prefill_fixed_s),
        tokens_s=_short_ramp(formula.tokens_s),
        sequences_s=_short_ramp(formula.sequences_s),
        kv_s=_short_ramp(formula.kv_s),
        mixed_kv_s=_short(formula.mixed_kv_s),
        pair_s=_short(formula.pair_s),
        least_piece_tokens=formula.least_piece_tokens,
    )


def text_of(
    target: Target, formula: StepFormula, within: list[Residual], beyond: list[Residual], longest_context: int
) -> str:
    """The file: where the figures are from, the coefficients in seconds, the errors of the fit."""
    lines = [
        "# Written by tools/fit_perf.py. The formula is in engine/tokenflow/sim/models/formula.py.",
        f'source = "{target.origin.source}"',
        f'licence = "{target.origin.licence}" # of the tables; these are figures fitted to them',
        f'dtype = "{target.dtype}"',
        f'kv_dtype = "{target.kv_dtype}"',
        f"tp = {target.tp}",
        f"overhead_ratio = {target.overhead_ratio} # a step of the engine over its kernels",
        f'overhead_source = "{target.overhead_source}"',
        f"longest_context_tokens = {longest_context} # of a sequence, among the steps that were fitted",
        "",
        "[formula]",
        f"fixed_s = {formula.fixed_s}",
        f"prefill_fixed_s = {formula.prefill_fixed_s}",
    ]
    for name, ramp in (("token", formula.tokens_s), ("sequence", formula.sequences_s), ("kv", formula.kv_s)):
        lines += [f"{name}_knots = {[int(knot) for knot in ramp.knots]}", f"{name}_slopes_s = {list(ramp.slopes)}"]
    lines += [
        f"mixed_kv_s = {formula.mixed_kv_s}",
        f"pair_s = {formula.pair_s}",
        f"least_piece_tokens = {formula.least_piece_tokens}",
    ]
    for entries, is_within in ((within, True), (beyond, False)):
        for entry in entries:
            lines += ["", *_residual_lines(entry, is_within)]
    return "\n".join(lines) + "\n"


def _residual_lines(entry: Residual, is_within: bool) -> list[str]:
    return [
        "[[residuals]]",
        f'kind = "{entry.kind}"',
        f"is_fitted = {'true' if is_within else 'false # longer contexts: told, not fitted'}",
        f"count = {entry.count}",
        f"mean_abs_ratio = {entry.mean_abs_ratio:.4f}",
        f"max_abs_ratio = {entry.max_abs_ratio:.4f}",
        f"bias_ratio = {entry.bias_ratio:.4f}",
    ]


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _short_ramp(ramp: Ramp) -> Ramp:
    return Ramp(ramp.knots, tuple(_short(slope) for slope in ramp.slopes))

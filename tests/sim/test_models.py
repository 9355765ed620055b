"""Performance models: the formula, the fit, and every file that is shipped."""

import tomllib
from importlib.resources import files

import numpy as np
import pytest
from datasets import dataset
from hypothesis import given
from hypothesis import strategies as st

from fit_perf import greatest_difference
from perf_tables import TARGETS, is_at_hand
from tokenflow.errors import UsageError
from tokenflow.sim.models import aiconfigurator, known_models, load_model
from tokenflow.sim.models.fit import StepKind, StepSample, fit_formula, non_negative_least_squares, residuals
from tokenflow.sim.models.formula import StepFormula
from tokenflow.sim.models.ramp import Ramp
from tokenflow.sim.models.shape import ModelShape
from tokenflow.sim.performance import PerformanceModel, StepWork

FORMULA = StepFormula(
    fixed_s=5e-3,
    prefill_fixed_s=1e-3,
    tokens_s=Ramp((0, 64), (0.0, 2e-5)),
    sequences_s=Ramp((0,), (1e-6,)),
    kv_s=Ramp((0, 4096), (1e-8, 3e-8)),
    mixed_kv_s=1e-8,
    pair_s=1e-9,
    least_piece_tokens=128,
)


def decode(batch: int, context: int) -> StepWork:
    return StepWork(batch, batch * context)


def prefill(new: int, prefix: int = 0, batch: int = 0, context: int = 0) -> StepWork:
    return StepWork(batch, batch * context, 1, new, new * (prefix + (new + 1) / 2))


def test_the_terms_of_a_step():
    # 100 sequences over 8192 tokens: G = 36 * 20 us, H = 100 us, A = 4096 * (10 + 30) ns.
    assert FORMULA.step_s(StepWork(100, 8192.0)) == pytest.approx(5e-3 + 720e-6 + 100e-6 + 4096 * 40e-9)
    # 64 tokens behind 36: 68.5 seen on average, and a piece below 128 costs there what 128 do.
    assert FORMULA.step_s(prefill(64, 36)) == pytest.approx(6e-3 + 128 * (36 + 32.5) * 1e-9)
    mixed = FORMULA.step_s(prefill(256, 0, 10, 500))
    assert mixed == pytest.approx(6e-3 + 202 * 2e-5 + 1e-5 + (4096 * 10 + 904 * 30) * 1e-9 + 5000e-8 + 256 * 128.5e-9)


@given(st.integers(0, 600), st.floats(0.0, 1e6))
def test_a_ramp_of_many_is_the_ramp_of_each(knot, x):
    ramp = Ramp((0, 16, 700 + knot), (0.5, 0.0, 2.0))
    assert ramp.of_many(np.array([x, 0.0, 16.0])).tolist() == [ramp(x), 0.0, 8.0]


@pytest.mark.parametrize("pair", known_models(), ids="-".join)
def test_every_file_holds_a_model_of_a_plausible_gpu(pair):
    model: PerformanceModel = load_model(*pair)
    document = tomllib.loads((files("tokenflow.sim.models") / "data" / "{}_{}.toml".format(*pair)).read_text())
    assert (model.gpu, model.model) == pair
    assert document["licence"] in ("Apache-2.0", "MIT")
    assert document["dtype"] in ("bf16", "fp8")
    assert 0.0 < model.step_s(decode(1, 1)) < 0.1
    assert model.step_s(decode(64, 2048)) > model.step_s(decode(64, 1024))
    # Beyond the last knot too, more work takes longer: nothing may be free because no table speaks of it.
    far = model.step_s(decode(2000, 1000))
    assert model.step_s(decode(2000, 1001)) > far
    assert model.step_s(prefill(40_000)) > model.step_s(prefill(20_000)) * 1.9
    assert model.step_s(prefill(512, 0, 32, 1024)) > max(model.step_s(prefill(512)), model.step_s(decode(32, 1024)))
    for entry in document["residuals"]:
        if entry["is_fitted"]:
            # fp8 GEMMs are a saw-tooth of 30 % in the number of tokens; the formula goes through its middle.
            assert entry["mean_abs_ratio"] <= (0.09 if document["dtype"] == "fp8" else 0.05), entry
    kinds = {entry["kind"] for entry in document["residuals"] if entry["is_fitted"]}
    assert {StepKind.DECODE, StepKind.PREFILL} <= kinds


@pytest.mark.parametrize("pair", known_models(), ids="-".join)
def test_leaps_cost_what_single_steps_cost(pair):
    model = load_model(*pair)
    kv_tokens = np.array([0.0, 100.0, 4096.0, 70_000.0, 900_000.0])
    for batch in (1, 17, 256):
        each = [model.step_s(StepWork(batch, float(kv))) for kv in kv_tokens]
        assert model.decode_steps_s(batch, kv_tokens).tolist() == each


@given(
    st.sampled_from(known_models()),
    st.integers(0, 500), st.integers(0, 500_000), st.integers(0, 8192), st.integers(0, 8192), st.integers(1, 300),
)  # fmt: skip
def test_more_to_do_never_takes_less_time(pair, batch, kv, new, prefix, more):
    model = load_model(*pair)
    pairs = new * (prefix + (new + 1) / 2)
    base_s = model.step_s(StepWork(batch, kv, int(new > 0), new, pairs))
    rounding_s = 1e-12
    assert model.step_s(StepWork(batch + more, kv, int(new > 0), new, pairs)) >= base_s - rounding_s
    assert model.step_s(StepWork(batch, kv + more, int(new > 0), new, pairs)) >= base_s - rounding_s
    if new:
        longer = new + more
        assert model.step_s(StepWork(batch, kv, 1, longer, longer * (prefix + (longer + 1) / 2))) >= base_s - rounding_s


def test_the_figures_of_the_published_tables():
    """A few cells, so that a change of a file is seen where the tables are not at hand (milliseconds, no overhead)."""
    known = {("h200", 64, 1024): 7.24, ("h100", 32, 1024): 8.2, ("a100", 128, 1024): 29.9, ("l40s", 64, 1024): 37.3,
             ("b200", 256, 1024): 9.4, ("rtx4090", 64, 1024): 29.3, ("a6000", 64, 1024): 45.0}  # fmt: skip
    for (gpu, batch, context), table_ms in known.items():
        model = load_model(gpu, "llama3-8b")
        assert model.formula.step_s(decode(batch, context)) * 1e3 == pytest.approx(table_ms, rel=0.06), gpu
    assert load_model("a6000", "llama3-8b").source.startswith("DERIVED")


def test_the_pool_of_the_measured_4090_comes_out():
    assert load_model("rtx4090", "llama3-8b").kv_tokens(0.9) == 41_408
    assert load_model("h200", "llama3-8b").kv_tokens(0.88) == pytest.approx(868_000, rel=0.03)
    assert load_model("h200", "qwen2.5-32b").kv_tokens(0.3) == 0  # the weights alone are more
    # Four GPUs hold a quarter of the weights and of every token's KV each.
    large = load_model("h100", "llama3-70b")
    assert large.kv_bytes_per_token * large.gpu_count == 327_680
    assert large.gpu_count == 4
    assert "bf16 GEMMs and bf16 KV, 4 GPUs" in large.source
    assert load_model("h200", "llama3-8b-fp8").source.endswith("fp8 GEMMs and bf16 KV, x 1.107 for the engine")


@pytest.mark.parametrize("name", ["llama3-8b", "Llama-3-8B", "llama3.1-8b", "Llama-3.1-8B"])
def test_a_model_by_the_names_that_people_use(name):
    assert load_model("H200", name).model == "llama3-8b"


def test_an_unknown_pair_says_what_there_is():
    with pytest.raises(UsageError, match="GPU 'gtx1080'") as caught:
        load_model("gtx1080", "llama3-8b")
    assert "rtx4090" in str(caught.value.hint)
    with pytest.raises(UsageError, match="'qwen3-8b' on rtx4090") as caught:
        load_model("rtx4090", "qwen3-8b")
    assert "llama3-8b" in str(caught.value.hint)


def test_a_fit_finds_the_formula_that_made_the_samples():
    works = [decode(batch, context) for batch in (1, 8, 32, 100, 200, 400) for context in (1, 64, 512, 2048)]
    works += [prefill(new, prefix) for new in (16, 64, 200, 600, 1500, 4096) for prefix in (0, 512, 4096)]
    works += [prefill(new, 0, batch, context) for new in (64, 600, 2048) for batch in (4, 64) for context in (64, 1024)]
    samples = [StepSample(work, FORMULA.step_s(work)) for work in works]
    found = fit_formula(samples)
    assert found.least_piece_tokens == 128
    assert max(entry.max_abs_ratio for entry in residuals(found, samples)) < 0.02
    assert found.pair_s == pytest.approx(1e-9, rel=0.05)


def test_least_squares_keeps_to_its_bound():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(40, 6))
    wanted = np.array([0.0, 2.0, 0.0, 0.5, 0.0, 1.0])
    assert non_negative_least_squares(matrix, matrix @ wanted) == pytest.approx(wanted, abs=1e-9)
    target = matrix @ np.array([-1.0, 2.0, -3.0, 0.5, 0.0, 1.0])
    found = non_negative_least_squares(matrix, target)
    assert found.min() >= 0.0
    # Optimal: no step into the allowed region helps (Karush, Kuhn, Tucker).
    gradient = matrix.T @ (target - matrix @ found)
    assert gradient[found == 0.0].max() <= 1e-9
    assert np.abs(gradient[found > 0.0]).max() <= 1e-9


def test_the_files_are_what_the_tables_give():
    assert {(target.gpu, target.model) for target in TARGETS} == set(known_models())
    folder = dataset("perf")
    for target in filter(is_at_hand, TARGETS):
        assert greatest_difference(target, folder) < 1e-3, (target.gpu, target.model)


def test_the_size_of_a_model_is_read_from_its_config():
    llama = {
        "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": False,
    }  # fmt: skip
    shape = ModelShape.of_config(llama, "llama")
    assert (shape.weight_bytes, shape.kv_bytes_per_token) == (16_060_522_496, 131_072)
    assert load_model("h200", "llama3-8b").weight_bytes == shape.weight_bytes
    tied = ModelShape.of_config(llama | {"tie_word_embeddings": True, "head_dim": 64}, "tied")
    assert tied.kv_bytes_per_token == 65_536
    assert tied.weight_bytes < shape.weight_bytes - 2 * 128256 * 4096
    with pytest.raises(UsageError, match="not a dense transformer"):
        ModelShape.of_config(llama | {"num_experts": 8}, "mixture")


def test_a_model_without_a_file_needs_the_package(monkeypatch):
    monkeypatch.setattr(aiconfigurator, "is_installed", lambda: False)
    with pytest.raises(UsageError, match=r"no figures for 'Qwen/Qwen3-1\.7B'") as caught:
        load_model("h200", "Qwen/Qwen3-1.7B")
    assert "tokenflow-serving[sim]" in str(caught.value.hint)


@pytest.mark.skipif(not aiconfigurator.is_installed(), reason="aiconfigurator-core (extra `sim`) is not installed")
def test_the_package_gives_what_the_file_has():
    live, file = load_model("h200", "meta-llama/Meta-Llama-3.1-8B"), load_model("h200", "llama3-8b")
    for work in (decode(16, 1024), decode(64, 1024), decode(200, 2000), prefill(1500), prefill(700, 1000, 50, 1000)):
        assert live.step_s(work) == pytest.approx(file.step_s(work), rel=0.06)
    assert (live.weight_bytes, live.kv_bytes_per_token) == (file.weight_bytes, file.kv_bytes_per_token)
    with pytest.raises(UsageError, match="does not know 'Qwen/Qwen9'"):
        load_model("h200", "Qwen/Qwen9")
    with pytest.raises(UsageError, match="no measured kernels for rtx4090"):
        load_model("rtx4090", "Qwen/Qwen3-8B")

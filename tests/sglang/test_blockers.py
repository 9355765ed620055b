import sys
from types import ModuleType, SimpleNamespace

import pytest
from sglang_fakes import scheduler_with

from tokenflow.sglang.blockers import find_blockers


class Engine:
    """SGLang's runtime context and a scheduler under it; nothing blocks until it is changed."""

    def __init__(self):
        self.parallel = SimpleNamespace(tp_size=2, pp_size=1, dp_size=1, attn_dp_enabled=False, attn_cp_size=1)
        self.spec = SimpleNamespace(speculative_algorithm=None)
        self.disagg = SimpleNamespace(disaggregation_mode="null")
        self.args = SimpleNamespace(nnodes=1)
        self.scheduler = scheduler_with()
        for name in ("enable_priority_preemption", "enable_hisparse", "dllm_config"):
            setattr(self.scheduler, name, None)
        tree = self.scheduler.tree_cache
        tree.tree_core = object()
        tree.supports_prefix_sharing = lambda: True
        tree.supports_mamba = tree.supports_swa = lambda: False


@pytest.fixture
def engine(monkeypatch):
    made = Engine()
    context = ModuleType("sglang.srt.runtime_context")
    context.get_parallel = lambda: made.parallel
    context.get_spec = lambda: made.spec
    context.get_disagg = lambda: made.disagg
    context.get_server_args = lambda: made.args
    for name, module in (
        ("sglang", ModuleType("sglang")),
        ("sglang.srt", ModuleType("sglang.srt")),
        ("sglang.srt.runtime_context", context),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    return made


def test_tensor_parallel_ranks_of_one_host_do_not_block(engine):
    assert find_blockers(engine.scheduler) == []


def test_replicas_of_one_host_do_not_block(engine):
    engine.parallel.dp_size = 2
    assert find_blockers(engine.scheduler) == []
    engine.parallel.tp_size, engine.args.nnodes = 1, 2
    assert find_blockers(engine.scheduler) == ["--nnodes 2"]


def test_every_option_that_blocks_is_named(engine):
    engine.args.nnodes = 2
    engine.parallel.pp_size = engine.parallel.dp_size = engine.parallel.attn_cp_size = 2
    engine.parallel.attn_dp_enabled = True
    engine.spec.speculative_algorithm = "EAGLE"
    engine.disagg.disaggregation_mode = "decode"
    engine.scheduler.enable_priority_preemption = engine.scheduler.enable_hisparse = True
    del engine.scheduler.tree_cache.tree_core
    found = find_blockers(engine.scheduler)
    assert found == [
        "--nnodes 2",
        "--enable-dp-attention",
        "--attn-cp-size 2",
        "--pp-size 2",
        "--speculative-algorithm EAGLE",
        "--disaggregation-mode decode",
        "--radix-cache-backend",
        "--enable-priority-scheduling without --disable-priority-preemption",
        "--enable-hisparse",
    ]

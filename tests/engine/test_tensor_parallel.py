"""Two tensor-parallel ranks on the real engine: rank 0 decides, and both do and hold the same, step by step."""

import itertools

import pytest
import rank_probe
from engine_streams import alone, burst, flush_cache, texts_of, wait_until_idle

# The demo model's nine heads cannot be shared between two ranks, so these weights have eight; and they are made up.
SPLIT = (
    *("--tp", "2", "--load-format", "dummy", "--json-model-override-args"),
    '{"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 512, "head_dim": 64}',
)
SLOTS = (*SPLIT, "--max-running-requests", "3")
SHORT_OF_KV = (*SPLIT, "--max-running-requests", "12", "--max-total-tokens", "700", "--context-length", "700")
# Short runs and small gains: streams take turns far more often than anybody would want them to.
RESTLESS = ("quantum_s=0", "first_run_tokens=2", "reserve_s=0", "surplus_s=0.2", "min_benefit_s=0", "safety_factor=1")
MOST_ROUNDS = 16


def start(rig, *arguments, ends_on_difference=True):
    """(the folder in which each rank writes what it did) SGLang's own check ends the engine where ranks differ."""
    rig.environment |= {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    if ends_on_difference:
        rig.environment |= {"SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1"}
    folder = rank_probe.install(rig.folder, rig.environment)
    rig.start(*arguments)
    return folder


def lines_of(folder):
    return [(folder / f"rank-{rank}").read_text().splitlines() for rank in (0, 1)]


def pauses_of(lines):
    return sum(int(line.split()[2]) for line in lines if line.startswith("directive"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("shortage", "wanted_pauses"), [(SLOTS, 50), (SHORT_OF_KV, 200)], ids=["slots", "kv"])
def test_both_ranks_decide_and_hold_the_same_over_many_swaps(own_engine, shortage, wanted_pauses):
    folder = start(own_engine, *shortage)
    plans = burst(seed=31, count=20, tokens=80)
    assert own_engine.tfctl("mode", "off").returncode == 0
    expected = [texts_of(own_engine, [alone(plan)])[0] for plan in plans]
    flush_cache(own_engine)

    enforced = own_engine.tfctl("mode", "enforce")
    assert enforced.returncode == 0, enforced.stderr
    assert own_engine.tfctl("tune", *RESTLESS).returncode == 0
    for _ in range(MOST_ROUNDS):
        assert texts_of(own_engine, plans) == expected
        wait_until_idle(own_engine)
        if (pauses := pauses_of(lines_of(folder)[0])) >= wanted_pauses:
            break
    assert own_engine.tfctl("mode", "observe").returncode == 0
    assert texts_of(own_engine, plans[:2]) == expected[:2]
    wait_until_idle(own_engine)

    status = own_engine.status()
    assert status["policy"]["fault_count"] == 0, own_engine.log()
    assert status["policy"]["blocked_by"] == []
    leader, follower = lines_of(folder)
    for number, (mine, theirs) in enumerate(itertools.zip_longest(leader, follower)):
        assert mine == theirs, f"the ranks differ at line {number} of {len(leader)} and {len(follower)}"
    print(f"{pauses} pauses in {len(leader)} lines, d2h {status['transfers']['d2h']}, h2d {status['transfers']['h2d']}")
    assert pauses >= wanted_pauses
    flush_cache(own_engine)  # refused unless everything was given back
    own_engine.stop()
    own_engine.assert_nothing_left()


@pytest.mark.timeout(600)
def test_ranks_that_differ_start_over(own_engine):
    """Rank 1 fails where rank 0 pauses somebody: both start over, go on with stock scheduling, and lose nobody."""
    folder = start(own_engine, *SHORT_OF_KV, ends_on_difference=False)
    plans = burst(seed=31, count=12, tokens=60)
    assert own_engine.tfctl("mode", "off").returncode == 0
    expected = [texts_of(own_engine, [alone(plan)])[0] for plan in plans]
    flush_cache(own_engine)
    assert own_engine.tfctl("mode", "enforce").returncode == 0
    assert own_engine.tfctl("tune", *RESTLESS).returncode == 0
    (folder / rank_probe.BREAK).touch()
    assert texts_of(own_engine, plans) == expected
    wait_until_idle(own_engine)

    assert not (folder / rank_probe.BREAK).exists()
    log = own_engine.log()
    assert "a fault on one rank alone" in log
    policy = own_engine.status()["policy"]
    assert policy["blocked_by"] == ["rank_skew"], log
    assert policy["mode"] == "observe"
    refused = own_engine.tfctl("mode", "enforce")
    assert refused.returncode != 0
    assert "rank_skew" in refused.stderr
    flush_cache(own_engine)  # refused unless everything was given back
    own_engine.stop()
    own_engine.assert_nothing_left()

"""What other tunables would have done: looks replayed through the real policy."""

import json
from pathlib import Path

import pytest
from document_samples import status_document

from tfctl.compare import _recorded, base_of
from tfctl.whatif import LookAt, WhatIf
from tokenflow.errors import ConflictError
from tokenflow.policy.states import RateSource, Reason, RequestState
from tokenflow.policy.tunables import Tunables, check
from tokenflow.wire import EngineState, RequestRow

RECORDING = Path(__file__).parents[1] / "tui" / "data" / "burst.tfrec"
TRANSITION_S = 1.0  # what the engine of these looks asked for, without its factor


def row(rid, state=RequestState.RUNNING, runway_s=5.0, age_s=20.0, **fields):
    rate = 5.0
    is_started = state is not RequestState.WAITING
    base = {
        "class_": "reading",
        "rate_tok_s": rate,
        "rate_source": RateSource.HEADER,
        "prompt_tokens": 20,
        "generated_tokens": 100 if is_started else 0,
        "delivered_tokens": 100 if is_started else 0,
        "consumed_tokens": 100 - runway_s * rate if is_started else 0.0,
        "unread_tokens": int(runway_s * rate),
        "runway_s": runway_s,
        "required_runway_s": 1.5 * TRANSITION_S,
        "kv_device_tokens": 120 if is_started else 0,
        "kv_host_tokens": 110 if is_started else 0,
        "ttft_s": 0.5 if is_started else None,
        "age_s": age_s,
        "reason": Reason.RUNNING_SURPLUS,
    }
    return RequestRow(rid=rid, state=state, **{**base, **fields})


def looks(rows, count=8):
    status = status_document(EngineState.SERVING)
    status.capacity.capacity_tok_s = 100.0
    return [LookAt(100.0 + 0.5 * index, status, rows) for index in range(count)]


def effect(rows, **values):
    return WhatIf(looks(rows), Tunables()).effect(check(values, Tunables())[0])


def test_the_safety_factor_decides_who_could_be_paused():
    rows = [row("a", runway_s=1.2), row("b", runway_s=2.5), row("c", runway_s=9.0)]
    assert [effect(rows, safety_factor=factor).safe_mean for factor in (1.0, 2.0, 4.0, 20.0)] == [3.0, 2.0, 1.0, 0.0]


def test_a_first_token_is_bought_from_whoever_can_afford_it():
    rows = [row("rich", runway_s=15.0), row("poor", runway_s=0.5), row("new", RequestState.WAITING, 0.0, 3.0)]
    bought = effect(rows)
    assert (bought.pause_count, bought.first_token_count, bought.dry_count) == (1, 1, 0)
    assert bought.least_left_s == pytest.approx(14.0, abs=0.1)
    assert effect(rows, safety_factor=20.0).pause_count == 0


def test_a_pause_that_is_ordered_at_every_look_counts_once():
    rows = [row("rich", runway_s=30.0), row("new", RequestState.WAITING, 0.0, 3.0)]
    assert effect(rows).pause_count == 1


def test_who_is_held_stays_where_it_is():
    held = row("held", RequestState.PREEMPTED, 1.0, reason=Reason.PREEMPTED_OPERATOR)
    assert effect([row("rich", runway_s=30.0), held]).pause_count == 0


def test_batch_requests_have_no_runway_to_lend():
    batch = row("batch", rate_tok_s=None, runway_s=0.0, required_runway_s=None)
    batch.runway_s = None
    assert effect([batch, row("rich", runway_s=30.0)]).safe_mean >= 1.0


def test_nothing_seen():
    found = WhatIf([], Tunables())
    assert len(found) == 0
    assert found.effect(Tunables()).pause_count == 0


def test_on_what_was_recorded_from_the_engine_more_caution_means_fewer_victims():
    seen, base = _recorded(RECORDING)
    whatif = WhatIf(seen, base)
    assert len(whatif) > 60
    safe = [whatif.effect(check({"safety_factor": factor}, base)[0]).safe_mean for factor in (1, 1.5, 3, 6, 20)]
    assert safe == sorted(safe, reverse=True)
    assert safe[0] > safe[-1]
    assert whatif.effect(base) == whatif.effect(base)


def test_without_an_engine_there_is_no_base():
    from document_samples import tunables_document

    with pytest.raises(ConflictError, match="no engine is serving"):
        base_of(tunables_document(None))


def test_the_table_and_the_document_say_the_same(tfctl):
    arguments = ("tune", "safety_factor=6", "--compare", "--from", str(RECORDING))
    text = tfctl(*arguments).out
    assert "nothing was changed" in text
    assert "safety_factor" in text
    document = json.loads(tfctl(*arguments, "--json").out)
    assert document["changes"] == {"safety_factor": 6.0}
    assert document["after"]["safe_mean"] < document["before"]["safe_mean"]
    assert f"{document['after']['safe_mean']:.1f}" in text


def test_nobody_there_is_said(tfctl, daemon):
    daemon.rows = []
    outcome = tfctl("tune", "safety_factor=6", "--compare", "--over", "0.1")
    assert outcome.code == 1
    assert "no request to compare on" in outcome.err

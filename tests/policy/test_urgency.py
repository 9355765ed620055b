"""In which order those go first who wait for a first token."""

import math

import numpy as np
import pytest
from policy_rows import NOW_S, decide, engine_with, paused, view_of, waiting

from tokenflow.policy.tunables import Tunables
from tokenflow.policy.urgency import urgencies


def test_of_prompts_that_come_at_once_the_short_ones_go_first():
    long, middle, short = (waiting(rid, context_tokens=size) for rid, size in (("l", 900), ("m", 500), ("s", 100)))
    assert [d.rid for d in decide(long, middle, short, engine=engine_with(slots_free=3)).starts] == ["s", "m", "l"]
    early = waiting("l", context_tokens=900, arrival_s=NOW_S - 1.4)
    assert next(d.rid for d in decide(early, middle, short, engine=engine_with(slots_free=3)).starts) == "l"


def test_first_tokens_stand_at_the_middle_lead_within_a_second():
    """However long one prompt is, it neither passes anybody by that nor is it passed by more than a second."""
    news = [waiting(f"w{number}", context_tokens=size) for number, size in enumerate((100, 100, 140, 8_000))]
    rows = urgencies(view_of(*news, paused("p", 0.2)), Tunables(), np.arange(5))
    aged_s = rows.slack_s - rows.starving_s / Tunables().starvation_bound_s
    middle_s = (rows.lead_s[1] + rows.lead_s[2]) / 2.0
    shift_s = rows.urgency_s[:4] - (aged_s[:4] - middle_s)
    assert shift_s == pytest.approx([-0.02, -0.02, 0.02, 1.0])
    assert rows.urgency_s[4] == aged_s[4] - rows.lead_s[4]


def test_a_lead_without_end_harms_nobody_else():
    news = [waiting("w"), waiting("endless", kv_device_tokens=-math.inf), waiting("other", context_tokens=200)]
    rows = urgencies(view_of(*news), Tunables(), np.arange(3))
    assert np.isfinite(rows.urgency_s).all()
    assert rows.urgency_s[1] > rows.urgency_s[2] > rows.urgency_s[0]

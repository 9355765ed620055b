"""The readers in columns are the policy's VirtualBuffer, one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenflow.policy.buffer import VirtualBuffer
from tokenflow.sim import readers
from tokenflow.sim.streams import Streams
from tokenflow.sim.workload import SimRequest

gaps_s = st.lists(st.floats(0.001, 2.0), min_size=1, max_size=6)
ticks = st.lists(st.tuples(st.booleans(), gaps_s), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(rates=st.lists(st.one_of(st.none(), st.floats(0.1, 100)), min_size=1, max_size=5), ticks=ticks)
def test_deliveries_in_leaps_and_time_that_passes(rates, ticks):
    streams, buffers = Streams(), [VirtualBuffer(rate) for rate in rates]
    for index, rate in enumerate(rates):
        streams.add(f"r{index}", SimRequest(0.0, 10, 1000, rate))
    rows = np.arange(len(rates))
    now_s, made = 0.0, 0
    for is_delivery, gaps in ticks:
        times_s = now_s + np.cumsum(gaps)
        now_s = float(times_s[-1])
        if is_delivery:
            readers.deliver(streams, rows, times_s, has_hidden=False)
            for time_s in times_s.tolist():
                made += 1
                for buffer in buffers:
                    buffer.deliver(time_s, made)
        else:
            readers.advance(streams, now_s)
        for row, buffer in enumerate(buffers):
            buffer.advance(now_s)
            unread = buffer.generated_tokens - buffer.consumed_tokens
            assert streams.column("unread_tokens")[row] == pytest.approx(unread, abs=1e-6)
            assert streams.column("is_started")[row] == (made > 0)
            assert streams.column("dry_s")[row] == pytest.approx(buffer.dry_s, abs=1e-6)


def test_hidden_tokens_are_no_runway():
    streams = Streams()
    streams.add("r", SimRequest(0.0, 10, 100, 5.0, hidden_tokens=3))
    rows = np.array([0])
    readers.deliver(streams, rows, np.array([1.0, 2.0, 3.0]), has_hidden=True)
    streams.column("made_tokens")[0] = 3
    assert not streams.column("is_started")[0]
    readers.deliver(streams, rows, np.array([4.0]), has_hidden=True)
    assert streams.column("is_started")[0]
    assert streams.column("unread_tokens")[0] == 1.0

"""Who decodes, and how many steps they can go on before something happens to one of them."""

import numpy as np

from tokenflow.policy.view import RUNNING
from tokenflow.sim.readers import Rows, deliver
from tokenflow.sim.state import EngineState

MOST_STEPS = 512


class DecodeBatch:
    """Rows of the running streams, with what the next step needs to know of them; kept until the batch changes."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._version = -1
        self.rows: Rows = np.empty(0, np.intp)
        self._kv_tokens = 0  # contexts in the next step, the token that it computes included
        self._steps_to_end = 0
        self._steps_to_visible = 0  # of the streams that make hidden tokens now; 0: there is none

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def kv_tokens(self) -> int:
        """Sum of the contexts in the next step."""
        return self._kv_tokens

    def refresh(self) -> None:
        """To be called before anything else when rows may have changed."""
        state = self._state
        if self._version == state.batch_version:
            return
        self._version = state.batch_version
        streams = state.streams
        self.rows = (streams.column("state") == RUNNING).nonzero()[0]
        made = streams.column("made_tokens")[self.rows]
        self._kv_tokens = int((streams.column("prompt_tokens")[self.rows] + made).sum())
        left = streams.column("output_tokens")[self.rows] - made
        self._steps_to_end = int(left.min()) if self.rows.size else 0
        hidden = streams.column("hidden_tokens")[self.rows] - made
        hidden = hidden[hidden > 0]
        self._steps_to_visible = int(hidden.min()) if hidden.size else 0

    def growth_tokens(self, steps: int) -> int:
        """Whole pages, in tokens, that so many steps allocate."""
        page = self._state.memory.page_tokens
        if page == 1:
            return steps * self.size
        held = self._held()
        return int((-(-(held + steps) // page) + held // -page).sum()) * page

    def most_steps(self) -> int:
        """Steps until somebody ends, hidden tokens end, or the pool is full. 0: the pool cannot take the next one."""
        most = min(self._steps_to_end, MOST_STEPS)
        if self._steps_to_visible:
            most = min(most, self._steps_to_visible)
        free = self._state.memory.kv_free_tokens
        if self.growth_tokens(most) <= free:
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            if self.growth_tokens(middle) <= free:
                low = middle
            else:
                high = middle
        return low

    def kv_sums(self, steps: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """Sum of the contexts in each of the next steps."""
        return self._kv_tokens + self.size * np.arange(steps, dtype=np.float64)

    def made(self, times_s: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> None:
        """Everybody has made a token at each of these times."""
        state, streams, steps = self._state, self._state.streams, len(times_s)
        state.memory.take_pages(self.growth_tokens(steps))
        deliver(streams, self.rows, times_s, has_hidden=self._steps_to_visible > 0)
        streams.column("made_tokens")[self.rows] += steps
        state.decode_times.append(times_s)
        self._kv_tokens += steps * self.size
        self._steps_to_end -= steps
        if self._steps_to_visible:
            self._steps_to_visible -= steps
            if not self._steps_to_visible:
                state.changed_batch()

    @property
    def has_ended(self) -> bool:
        """True if somebody has made its last token."""
        return self.size > 0 and self._steps_to_end == 0

    def _held(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        streams = self._state.streams
        made = streams.column("made_tokens")[self.rows]
        held: np.ndarray[tuple[int], np.dtype[np.int64]] = streams.column("prompt_tokens")[self.rows] + made - 1
        return held

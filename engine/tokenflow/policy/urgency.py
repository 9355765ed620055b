"""One order in seconds for everybody who wants a place: least first (docs/policy.md).

urgency = slack − lead − ageing. Slack is the time until something bad happens (a reader runs dry, the first token is
late, a batch request's bound is over); lead is the time from getting a place to the next token. Among those who wait
for a first token all stand at the middle lead, the shorter prompt before the longer: of many that come at once the
short ones first are the least wait for all together.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.buffer import MAX_RATE_TOK_S, MIN_RATE_TOK_S
from tokenflow.policy.costs import restores
from tokenflow.policy.states import Variant
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.view import View

# How late a first token may count. Beyond it a waiting request no longer rises above a reader who has stalled for
# longer than this; only ageing and the starvation bound lift it further.
LATENESS_CAP_S = 1.0
_MOST_UNREAD_TOKENS = 1e9
_LONGEST_READING_S = 100.0
_LONGEST_LEAD_S = 1e6
_OURS = Variant.TOKENFLOW

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Urgencies:
    """For some waiting or paused rows. All in seconds, except the flags."""

    slack_s: Floats
    lead_s: Floats
    shared_s: Floats  # of the lead: what a group pays once
    starving_s: Floats  # how long it has gone without what it needs
    urgency_s: Floats
    is_first: Flags  # somebody waits for its first token
    is_paused_reader: Flags  # somebody is reading what was made
    is_load: Flags


def runways(view: View, rows: Rows) -> Floats:
    """Seconds until each reader runs dry. Infinite where nobody reads along, 0 before the first visible token.

    Values that cannot be are brought into their range: unread below 0 or NaN is 0, rates are clamped.
    """
    rates = view.rate_tok_s[rows]
    unread = np.fmin(np.fmax(view.unread_tokens[rows], 0.0), _MOST_UNREAD_TOKENS)
    runway_s = unread / np.minimum(np.maximum(rates, MIN_RATE_TOK_S), MAX_RATE_TOK_S)
    runway_s[~view.is_started[rows]] = 0.0
    runway_s[rates != rates] = np.inf
    return runway_s


def far_ahead(view: View, tunables: Tunables, rows: Rows) -> Flags:
    """Rows with more unread tokens than are worth having ready; readers' rows only.

    That is `max_unread_ratio` of their length, or of what is read in 100 s where that is less: `max_tokens` may be
    far above what a request will make. And no less than what a victim must have, and a run: of short answers a tenth
    is read in a moment. The variants that follow other people's formulas know none such.
    """
    if tunables.variant is not _OURS:
        return np.zeros(rows.size, np.bool_)
    rates = view.rate_tok_s[rows]
    is_read = rates >= 0.0
    rates = np.minimum(np.maximum(rates, MIN_RATE_TOK_S), MAX_RATE_TOK_S)
    worth_tokens = tunables.max_unread_ratio * np.fmin(view.length_tokens[rows], _LONGEST_READING_S * rates)
    least_tokens = (tunables.surplus_s + tunables.quantum_s) * rates
    is_ahead: Flags = view.unread_tokens[rows] > np.fmax(worth_tokens, least_tokens)
    return is_ahead & is_read


def _shorter_first_s(lead_s: Floats) -> Floats:
    """What is added to the urgency of those who wait for a first token: its own lead back, and then the middle one off
    and the difference on, as far as LATENESS_CAP_S. A very long prompt passes nobody by its length, nor is it passed by
    more than that."""
    lead_s = np.fmin(lead_s, _LONGEST_LEAD_S)
    middle_s = float(np.median(lead_s))
    shift_s: Floats = lead_s - middle_s + np.clip(lead_s - middle_s, -LATENESS_CAP_S, LATENESS_CAP_S)
    return shift_s


def urgencies(view: View, tunables: Tunables, rows: Rows) -> Urgencies:
    """The terms of the order for waiting and paused rows."""
    now_s, bound_s = view.engine.now_s, tunables.starvation_bound_s
    slack_s = runways(view, rows)
    is_started = view.is_started[rows]
    is_read = slack_s < np.inf
    is_paused_reader = is_read & is_started
    is_first = is_read & ~is_started
    starving_s = np.fmax(now_s - view.since_s[rows], 0.0)
    unread = (~is_read).nonzero()[0]
    if unread.size:
        slack_s[unread] = bound_s - starving_s[unread]
    first = is_first.nonzero()[0]
    if first.size:
        late_s = tunables.ttft_target_s - np.fmax(now_s - view.arrival_s[rows[first]], 0.0)
        slack_s[first] = np.fmax(late_s, -LATENESS_CAP_S)
    paused = is_paused_reader.nonzero()[0]
    if paused.size:
        dry_s = np.fmax(view.dry_s[rows[paused]], 0.0)
        starving_s[paused] = dry_s
        slack_s[paused] -= np.where(slack_s[paused] > 0.0, 0.0, dry_s)
    back = restores(view, rows, tunables.restore)
    urgency_s = slack_s - np.fmin(back.lead_s, _LONGEST_LEAD_S) - starving_s * (1.0 / bound_s)
    if first.size > 1:
        urgency_s[first] += _shorter_first_s(back.lead_s[first])
    return Urgencies(
        slack_s, back.lead_s, back.shared_s, starving_s, urgency_s, is_first, is_paused_reader, back.is_load
    )

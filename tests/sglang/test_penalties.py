"""What a stream has said before counts after its pause. With SGLang's own sums: tests/engine/test_penalties.py."""

from types import SimpleNamespace

import pytest
from sglang_fakes import FakeReq

from tokenflow.sglang import penalties

torch = pytest.importorskip("torch")
VOCABULARY = 16


class BatchedFrequencyPenalizer:
    """Fed as SGLang's is, a token of each row a step."""

    def __init__(self, values):
        self.frequency_penalties = torch.tensor(values).unsqueeze(1)
        self.cumulated_frequency_penalties = torch.zeros((len(values), VOCABULARY))

    def is_prepared(self):
        return True

    def feed(self, tokens):
        self.cumulated_frequency_penalties.scatter_add_(1, tokens.unsqueeze(1), self.frequency_penalties)

    @property
    def sums(self):
        return self.cumulated_frequency_penalties


class BatchedPresencePenalizer(BatchedFrequencyPenalizer):
    def __init__(self, values):
        self.presence_penalties = torch.tensor(values).unsqueeze(1)
        self.cumulated_presence_penalties = torch.zeros((len(values), VOCABULARY))

    def feed(self, tokens):
        self.cumulated_presence_penalties.scatter_(1, tokens.unsqueeze(1), self.presence_penalties)

    @property
    def sums(self):
        return self.cumulated_presence_penalties


class BatchedRepetitionPenalizer(BatchedFrequencyPenalizer):
    def __init__(self, values):
        self.repetition_penalties = torch.tensor(values).unsqueeze(1)
        self.cumulated_repetition_penalties = torch.ones((len(values), VOCABULARY))

    def feed(self, tokens):
        self.cumulated_repetition_penalties.scatter_(1, tokens.unsqueeze(1), self.repetition_penalties)

    @property
    def sums(self):
        return self.cumulated_repetition_penalties


class BatchedMinNewTokensPenalizer(BatchedFrequencyPenalizer):
    def __init__(self, values):
        self.len_output_tokens = torch.zeros((len(values), 1), dtype=torch.int32)

    def feed(self, tokens):
        self.len_output_tokens += 1

    @property
    def sums(self):
        return self.len_output_tokens


KINDS = (
    BatchedFrequencyPenalizer,
    BatchedPresencePenalizer,
    BatchedRepetitionPenalizer,
    BatchedMinNewTokensPenalizer,
)


def request(output_ids, *, was_paused=True):
    req = FakeReq("a", output_ids=list(output_ids))
    req.origin_input_ids = [1, 2]
    req.retracted_stain = was_paused
    return req


def batch_with(kind, *reqs):
    orchestrator = SimpleNamespace(is_required=True, device="cpu", penalizers={kind: kind([0.5] * len(reqs))})
    sampling = SimpleNamespace(penalizer_orchestrator=orchestrator)
    return SimpleNamespace(reqs=list(reqs), decoding_reqs=None, sampling_info=sampling)


def sums_of(batch):
    (one,) = batch.sampling_info.penalizer_orchestrator.penalizers.values()
    return one.sums


@pytest.mark.parametrize("is_overlap", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_a_stream_that_was_never_paused(kind, is_overlap):
    batch = batch_with(kind, request([5, 6, 5, 7, 5]), request([]))
    penalties.restore(batch, is_overlap)
    never_paused = kind([0.5])
    for token in [2, 5, 6, 5, 7] if is_overlap else [5, 6, 5, 7, 5]:
        never_paused.feed(torch.tensor([token]))
    assert torch.equal(sums_of(batch)[0], never_paused.sums[0])
    assert torch.equal(sums_of(batch)[1], kind([0.5]).sums[0])


def test_newcomers_and_those_who_run_on_are_left_alone():
    runs = request([5, 5])
    batch = batch_with(BatchedFrequencyPenalizer, request([]), request([5], was_paused=False), runs)
    batch.decoding_reqs = [runs]
    penalties.restore(batch, False)
    assert not sums_of(batch).any()


def test_where_nobody_asks_for_any_nothing_is_touched():
    batch = batch_with(BatchedFrequencyPenalizer, request([5]))
    batch.sampling_info.penalizer_orchestrator.is_required = False
    penalties.restore(batch, False)
    assert not sums_of(batch).any()

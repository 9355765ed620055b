"""What a stream's own text forbids it to say again, over a pause.

SGLang keeps the sums of repetition, frequency and presence penalties, and the count for `min_new_tokens`, in tensors of
the running batch, fed with one token a step. A stream that comes back enters by a prefill, whose sums begin at nothing:
its earlier tokens are fed again here, or each pause would let the model repeat itself.
"""

from typing import Any


def restore(batch: Any, is_overlap: bool) -> None:
    """For the rows of a new prefill batch that have made tokens before. Called before its step is launched."""
    orchestrator = batch.sampling_info.penalizer_orchestrator
    if not orchestrator.is_required:
        return
    running = {id(req) for req in batch.decoding_reqs or ()}
    for row, req in enumerate(batch.reqs):
        if req.output_ids and req.retracted_stain and id(req) not in running:
            _feed(orchestrator, row, _fed(req, is_overlap))


def _fed(req: Any, is_overlap: bool) -> list[int]:
    """The tokens that the steps so far would have fed: with overlap each step knows the last token but one, and the
    first one the prompt's last."""
    made = list(req.output_ids)
    return [req.origin_input_ids[-1], *made[:-1]] if is_overlap else made


def _feed(orchestrator: Any, row: int, tokens: list[int]) -> None:
    import torch

    index = torch.tensor(tokens, dtype=torch.int64).to(orchestrator.device, non_blocking=True)
    for kind, one in orchestrator.penalizers.items():
        if not one.is_prepared():
            continue
        match kind.__name__:
            case "BatchedFrequencyPenalizer":
                one.cumulated_frequency_penalties[row].scatter_add_(
                    0, index, one.frequency_penalties[row].expand(len(tokens))
                )
            case "BatchedPresencePenalizer":
                one.cumulated_presence_penalties[row].scatter_(
                    0, index, one.presence_penalties[row].expand(len(tokens))
                )
            case "BatchedRepetitionPenalizer":
                one.cumulated_repetition_penalties[row].scatter_(
                    0, index, one.repetition_penalties[row].expand(len(tokens))
                )
            case "BatchedMinNewTokensPenalizer":
                one.len_output_tokens[row] += len(tokens)

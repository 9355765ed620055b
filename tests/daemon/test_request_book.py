from telemetry_samples import stream, telemetry

from tokenflow.policy.states import RequestState
from tokenflowd.request_book import KEEP_ENDED_COUNT, KEEP_ENDED_S, RequestBook


def named(rid: str, state: RequestState):
    made = stream(state=state)
    made.rid = rid
    return made


def rids(book: RequestBook) -> list[str]:
    return [row.rid for row in book.rows()]


def test_live_rows_are_replaced_and_ended_ones_kept():
    book = RequestBook()
    book.take([telemetry(named("a", RequestState.RUNNING), named("b", RequestState.FINISHED), sent_s=20.0)])
    book.take([telemetry(named("c", RequestState.RUNNING), sent_s=21.0)])
    assert rids(book) == ["c", "b"]


def test_the_last_word_on_an_ended_request_is_kept():
    book = RequestBook()
    first = named("b", RequestState.FINISHED)
    book.take([telemetry(first, sent_s=20.0)])
    last = named("b", RequestState.FINISHED)
    last.buffer.deliver(20.5, 9)
    book.take([telemetry(last, sent_s=21.0)])
    assert book.rows()[0].delivered_tokens == 9


def test_ended_rows_are_bounded_in_age_and_number():
    book = RequestBook()
    book.take([telemetry(*(named(f"r{n}", RequestState.FINISHED) for n in range(KEEP_ENDED_COUNT + 9)), sent_s=1.0)])
    assert len(book.rows()) == KEEP_ENDED_COUNT
    book.take([telemetry(sent_s=1.0 + KEEP_ENDED_S + 1)])
    assert book.rows() == []

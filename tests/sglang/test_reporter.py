"""Deliveries and acks over the real socket: merged, the newest of each stream."""

import asyncio

import pytest
import zmq

from tokenflow import link
from tokenflow.sglang.reporter import DeliveryReporter


@pytest.fixture
def scheduler(tmp_path):
    context = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.bind(f"ipc://{tmp_path / link.DELIVERY_SOCKET}")
    yield socket
    context.destroy(0)


async def received(scheduler):
    for _ in range(500):
        if scheduler.poll(0):
            return link.decode_deliveries(scheduler.recv())
        await asyncio.sleep(0.01)
    raise AssertionError("nothing came")


async def test_thousands_of_acks_are_one_message(scheduler, tmp_path):
    reporter = DeliveryReporter(tmp_path)
    for number in range(3000):
        reporter.report_ack(link.Ack(f"tf-{number % 30}", number, 1.0))
    batch = await received(scheduler)
    assert [ack.consumed_tokens for ack in batch.acks] == list(range(2970, 3000))
    assert not scheduler.poll(100)


async def test_what_an_earlier_ack_said_of_rate_and_class_holds(scheduler, tmp_path):
    reporter = DeliveryReporter(tmp_path)
    reporter.report_ack(link.Ack("tf-a", 1, 1.0, 8.0, link.ReaderClass("reading", 6.0)))
    reporter.report_ack(link.Ack("tf-a", 2, 1.1))
    reporter.report([link.Delivery("tf-a", 4, 1.2)])
    batch = await received(scheduler)
    assert batch.acks == [link.Ack("tf-a", 2, 1.1, 8.0, link.ReaderClass("reading", 6.0))]
    assert [delivery.delivered_tokens for delivery in batch.deliveries] == [4]


async def test_every_scheduler_is_told(scheduler, tmp_path):
    with zmq.Context() as context, context.socket(zmq.PULL) as second:
        second.bind(f"ipc://{tmp_path / link.own_socket(link.DELIVERY_SOCKET, 1)}")
        reporter = DeliveryReporter(tmp_path)
        reporter.report([link.Delivery("tf-a", 4, 1.2)])
        batches = [await received(scheduler), await received(second)]
    assert batches == [link.DeliveryBatch([link.Delivery("tf-a", 4, 1.2)])] * 2


async def test_without_anybody_there_nothing_waits(tmp_path):
    reporter = DeliveryReporter(tmp_path)
    reporter.report([])
    reporter.flush()
    reporter.report([link.Delivery("tf-a", 4, 1.2)])
    reporter.flush()

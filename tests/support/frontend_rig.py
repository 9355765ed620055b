"""The HTTP process's parts without a scheduler: what would cross the link is kept."""

from tokenflow import link


class Reports:
    """Takes the place of the ZeroMQ reporter."""

    def __init__(self) -> None:
        self.deliveries: list[link.Delivery] = []
        self.acks: list[link.Ack] = []
        self.flush_count = 0

    def report(self, deliveries: list[link.Delivery]) -> None:
        self.deliveries.extend(deliveries)

    def report_ack(self, ack: link.Ack) -> None:
        self.acks.append(ack)

    def flush(self) -> None:
        self.flush_count += 1

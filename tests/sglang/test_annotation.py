from types import SimpleNamespace

import msgspec

from tokenflow.policy.states import RateSource
from tokenflow.sglang.annotation import KEY, Annotation, attach, read
from tokenflow.sglang.readers import Reader

NOTE = Annotation(Reader("reading", 6.5, RateSource.HEADER), 12.25, "tf-parent")


def test_it_survives_the_way_through_messagepack():
    parameters = SimpleNamespace(custom_params=None)
    attach(parameters, NOTE)
    wire = msgspec.msgpack.decode(msgspec.msgpack.encode(parameters.custom_params))
    assert read(SimpleNamespace(custom_params=wire)) == NOTE


def test_the_clients_own_parameters_stay_and_are_not_changed_in_place():
    own = {"thinking_budget": 3}
    parameters = SimpleNamespace(custom_params=own)
    attach(parameters, NOTE)
    assert parameters.custom_params["thinking_budget"] == 3
    assert own == {"thinking_budget": 3}


def test_a_client_cannot_bring_its_own():
    parameters = SimpleNamespace(custom_params={KEY: ["batch", None, "ack", 0.0, None]})
    attach(parameters, NOTE)
    assert read(parameters) == NOTE


def test_a_request_without_one_has_none():
    assert read(SimpleNamespace(custom_params=None)) is None
    assert read(SimpleNamespace(custom_params={"a": 1})) is None

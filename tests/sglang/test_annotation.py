from types import SimpleNamespace

import msgspec
import pytest

from tokenflow.policy.states import RateSource
from tokenflow.sglang.annotation import KEY, Annotation, attach, read
from tokenflow.sglang.readers import Reader

NOTE = Annotation(Reader("reading", 6.5, RateSource.BODY, 60.0, True), 12.25, "tf-parent", True)


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


@pytest.mark.parametrize("forged", [3, "x", [], ["reading"], {"a": 1}, ["r"] * 8])
def test_what_is_none_of_ours_is_no_annotation(forged):
    """A client's own, by a route that we do not wrap."""
    assert read(SimpleNamespace(custom_params={KEY: forged})) is None

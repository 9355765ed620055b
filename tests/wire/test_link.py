import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenflow import link
from tokenflow.policy.states import Mode

COMMANDS = st.one_of(
    st.just(link.Ping()),
    st.sampled_from(Mode).map(lambda mode: link.SetMode(mode=mode)),
    st.text(max_size=20).map(lambda rid: link.PauseRequest(rid=rid, deadline_s=1.0, who="uid=1 pid=2")),
    st.text(max_size=20).map(lambda rid: link.ResumeRequest(rid=rid)),
    st.dictionaries(st.text(max_size=9), st.one_of(st.text(max_size=9), st.booleans(), st.floats(0, 9))).map(
        lambda changes: link.Tune(changes=changes, if_revision=3)
    ),
    st.text(max_size=20).map(lambda rid: link.ShowStream(rid=rid)),
    st.booleans().map(lambda reopen: link.CloseAdmission(reopen=reopen)),
    st.text(max_size=200).map(lambda text: link.CutStreams(message=text)),
)


@given(COMMANDS)
def test_every_command_comes_back_as_it_was(command):
    assert link.decode_command(link.encode(command)) == command


@given(st.binary(max_size=200))
def test_rubbish_is_refused_and_never_anything_else(body):
    try:
        command = link.decode_command(body)
    except msgspec.MsgspecError:
        return
    assert isinstance(command, link.Command)


def test_an_unknown_command_is_refused():
    with pytest.raises(msgspec.ValidationError):
        link.decode_command(msgspec.msgpack.encode({"type": "self_destruct"}))


def test_a_newer_reply_with_unknown_fields_is_still_read():
    body = msgspec.to_builtins(link.Reply(plugin_version="9", pid=1, plugin="active"))
    assert link.decode_reply(msgspec.msgpack.encode({**body, "new_field": 1})).plugin_version == "9"


@given(st.lists(st.tuples(st.text(max_size=20), st.integers(0, 2**31), st.floats(0, 1e9)), max_size=20))
def test_deliveries_come_back(parts):
    batch = link.DeliveryBatch([link.Delivery(*part) for part in parts])
    assert link.decode_deliveries(link.encode(batch)) == batch


ACKS = st.builds(
    link.Ack,
    st.text(max_size=20),
    st.integers(0, 2**53),
    st.floats(0, 1e9),
    st.none() | st.floats(0.1, 1e4),
    st.none() | st.builds(link.ReaderClass, st.text(max_size=9), st.none() | st.floats(0.1, 1e4)),
)


@given(st.lists(ACKS, max_size=20))
def test_acks_come_back(acks):
    batch = link.DeliveryBatch([], acks)
    assert link.decode_deliveries(link.encode(batch)) == batch


def test_a_batch_of_an_older_plugin_has_no_acks():
    body = msgspec.msgpack.encode([[["tf-a", 3, 1.0, False, False]]])
    assert link.decode_deliveries(body) == link.DeliveryBatch([link.Delivery("tf-a", 3, 1.0)])

"""At temperature 0 in float32 the plugin changes nothing: the text with it equals the text without it."""

import asyncio

from stock_engine import StockEngine

from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.run import LoadRun

PLAN = StreamPlan(
    index=0, arrival_s=0.0, prompt="Explain how a sailing boat can sail upwind.", rate_tok_s=6.0, max_tokens=96
)


def text_of(url: str, model: str) -> str:
    run = LoadRun(Endpoint(url=url, model=model), [PLAN], keep_text=True)
    [stream] = asyncio.run(run.execute()).streams
    assert stream.error is None
    assert stream.text
    return stream.text


def test_the_text_is_that_of_an_engine_without_the_plugin(own_engine, tmp_path):
    stock = StockEngine(tmp_path / "stock.log")
    try:
        stock.wait_until_serving()
        assert not [name for name in stock.headers() if name.lower().startswith("x-tokenflow")]
        expected = text_of(stock.url, "stock")
    finally:
        stock.close()

    own_engine.start()
    assert own_engine.tfctl("mode", "observe").returncode == 0
    assert own_engine.status()["engine"]["plugin"] == "active"
    assert own_engine.status()["policy"]["mode"] == "observe"
    assert text_of(own_engine.url, own_engine.model) == expected
    own_engine.stop()
    own_engine.assert_nothing_left()

"""The demo, as `make run` calls it, on the real engine."""

import re


def test_without_a_terminal_it_prints_every_stream_and_ends_with_zero(engine):
    result = engine.python(
        *("-m", "tokenflow.loadgen.demo", "--requests", "5", "--rates", "3,9", "--max-tokens", "12-20", "--seed", "4")
    )
    assert result.returncode == 0, result.stdout + result.stderr + engine.log()
    table = [line.split() for line in result.stdout.splitlines() if re.match(r"tf-[0-9a-f]+ ", line)]
    assert len({cells[0] for cells in table}) == 5
    rows = engine.rows("--all")
    for rid, ending, ttft_s, tokens, rate_tok_s, least_runway_s, stalls, stalled_s, engine_tokens, _ in table:
        assert ending in ("length", "stop")
        assert float(ttft_s) > 0.0
        assert 1 <= int(tokens) <= 20
        assert int(tokens) == int(engine_tokens) == rows[rid]["generated_tokens"]
        assert float(rate_tok_s) in (3.0, 9.0)
        assert float(least_runway_s) >= 0.0
        assert (int(stalls) == 0) == (float(stalled_s) == 0.0) or float(stalled_s) < 0.05
    assert "5 of 5 streams complete" in result.stdout
    assert "Still running" in result.stdout
    assert engine.status()["engine"]["state"] in ("serving", "busy")

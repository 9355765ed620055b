"""The browser page's own code, run by Node.js against a server: what a reader sees, and what is acked."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from openai_stand_in import StandIn

PAGE = Path(__file__).parents[2] / "docs" / "examples" / "reader.html"
NODE = shutil.which("node")

DRIVER = """
const seen = [];
const session = new ReadingSession({
  ...OPTIONS, tickSeconds: 0.01, ackSeconds: 0.05, prompt: "x", onText: (text) => seen.push(text),
});
setTimeout(() => { STEPS }, 250);
session.run().then(() => "ended", (error) => error.message).then((ending) => {
  const { received, consumed, stallCount } = session.reader;
  const { rid, ackCount, failedAckCount, acked } = session;
  const figures = { seen, ending, received, consumed, stallCount, rid, ackCount, failedAckCount, acked };
  console.log(JSON.stringify(figures));
});
"""


def core() -> str:
    found = re.search(r'<script id="core">(.*?)</script>', PAGE.read_text(), re.DOTALL)
    assert found
    return found[1]


def in_node(code: str) -> str:
    if NODE is None:
        pytest.skip("Node.js is not installed here: the page's code cannot be run")
    done = subprocess.run([NODE, "-"], input=code, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(server: StandIn, steps: str = "", **options) -> dict:
    chosen = {"url": server.url, "maxTokens": 20, "rate": 40, **options}
    code = core() + DRIVER.replace("OPTIONS", json.dumps(chosen)).replace("STEPS", steps)
    return json.loads(in_node(code))


def test_the_page_loads_nothing_from_elsewhere():
    text = PAGE.read_text()
    assert not re.search(r"<(link|img|iframe)\b|<script[^>]+src=|@import|url\(", text)
    assert "innerHTML" not in text
    assert set(re.findall(r"https?://[^\s\"'`;<]+", text)) == {"http://127.0.0.1:30000"}


def test_the_form_and_its_script_fit():
    text = PAGE.read_text()
    page = re.search(r'<script id="page">(.*?)</script>', text, re.DOTALL)
    assert page
    wanted = set(re.findall(r'at\("(\w+)"\)', page[1]))
    assert wanted <= set(re.findall(r'\bid="(\w+)"', text))
    in_node(f"new Function({json.dumps(core() + page[1])});")  # raises a SyntaxError where there is one


def test_it_reads_to_the_end_and_acks():
    with StandIn(token_s=0.1, has_acks=True) as server:
        found = read(server)
    assert found["ending"] == "ended"
    assert found["seen"] == [f"w{number} " for number in range(1, 21)]
    assert found["received"] == found["consumed"] == 20
    assert found["rid"] == "tf-1"
    [acks] = server.acks.values()
    consumed = [ack["consumed_tokens"] for ack in acks]
    assert consumed == sorted(set(consumed))
    assert found["ackCount"] >= 2
    assert found["failedAckCount"] == 0
    assert found["acked"] <= consumed[-1] <= 20
    assert server.bodies[0]["model"] == "toy"  # the first that the server lists
    assert {name.lower(): value for name, value in server.headers[0].items()}["x-tokenflow-rate"] == "40"


LEAVE_ONCE_TOLD = """
session.rate = 15;
const waiting = setInterval(() => {
  if (session.toldRate !== 15) return;
  clearInterval(waiting);
  session.pause(true);
  setTimeout(() => session.leave(), 500);
}, 10);
"""


def test_a_new_rate_is_told_and_a_pause_stops_the_reading():
    with StandIn(token_s=0.05, has_acks=True) as server:
        found = read(server, LEAVE_ONCE_TOLD, maxTokens=1000)
    assert "abort" in found["ending"].lower()
    [acks] = server.acks.values()
    assert [ack["rate"] for ack in acks if "rate" in ack] == [15]
    assert found["consumed"] < found["received"] < 1000


STAY_PAUSED = """
session.pause(true);
setTimeout(() => session.leave(), 2600);
"""


def test_a_paused_reader_says_once_a_second_that_it_stands_still():
    with StandIn(token_s=0.02, has_acks=True) as server:
        read(server, STAY_PAUSED, maxTokens=1000)
    [acks] = server.acks.values()
    consumed = [ack["consumed_tokens"] for ack in acks]
    assert consumed.count(consumed[-1]) >= 2
    assert consumed == sorted(consumed)


def test_a_server_without_acks_is_read_all_the_same():
    with StandIn() as server:
        found = read(server, model="mine")
    assert found["ending"] == "ended"
    assert (found["ackCount"], found["failedAckCount"]) == (0, 0)
    assert server.bodies[0]["model"] == "mine"


def test_a_refusal_is_shown_in_the_servers_words():
    with StandIn(fail_every=1) as server:
        assert read(server)["ending"] == "HTTP 503: admission is closed"


def test_events_are_decoded_however_they_are_split():
    raw = "data: one\r\n\r\ndata:two\ndata: three\n\n: comment\n\ndata: [DONE]\r\r"
    code = (
        core() + f"const raw = {json.dumps(raw)}; const found = [];"
        "for (let cut = 0; cut <= raw.length; cut++) { const d = new EventDecoder();"
        "found.push([...d.feed(raw.slice(0, cut)), ...d.feed(raw.slice(cut))]); }"
        "const d = new EventDecoder(); found.push([...raw].flatMap((c) => d.feed(c)));"
        "console.log(JSON.stringify([...new Set(found.map((f) => JSON.stringify(f)))]));"
    )
    assert json.loads(in_node(code)) == [json.dumps(["one", "two\nthree", "[DONE]"], separators=(",", ":"))]


def test_the_readers_arithmetic():
    code = core() + (
        "const r = new PacedReader(10); r.advance(0); r.arrive(1, 5); r.advance(1.2);"
        "const first = [r.consumed, r.runwaySeconds]; r.advance(2.0); const dry = [r.consumed, r.stallSeconds];"
        "r.arrive(3.0, 8); r.isPaused = true; r.advance(9); const held = r.consumed; r.isPaused = false;"
        "r.isOver = true; r.advance(20); console.log(JSON.stringify({first, dry, held, end: r.consumed,"
        "stalls: [r.stallCount, r.stallSeconds]}));"
    )
    found = json.loads(in_node(code))
    assert found["first"] == pytest.approx([2.0, 0.3])
    assert found["dry"] == pytest.approx([5.0, 0.5])
    assert (found["held"], found["end"]) == (5, 8)
    assert found["stalls"] == pytest.approx([1, 1.5])

"""Makes docs/img/live.svg: what `tfctl status` and `tfctl ps` print while a burst of streams runs.

    tfctl start demo-cpu
    python bench/screenshot.py

Sends the demo's burst to the engine that runs, asks tfctl on a terminal of its own, and draws what it printed.
Nothing is made up: without a serving engine there is no picture.
"""

import argparse
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tokenflow.loadgen.burst import BackgroundBurst
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.operate import Tfctl
from tokenflow.loadgen.plan import Workload, plan_streams
from tokenflow.loadgen.run import LoadRun

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "docs/img/live.svg")
    parser.add_argument("--after-tokens", type=int, default=450, help="look when so many tokens have arrived")
    parser.add_argument("--width", type=int, default=100, help="columns of the terminal")
    options = parser.parse_args()
    engine = Tfctl().status().engine
    if engine.url is None or engine.model is None:
        print("no engine serves; start one: tfctl start demo-cpu", file=sys.stderr)
        return 1
    workload = Workload(
        request_count=12,
        arrivals="burst:12",
        rates="4:0.5,6:0.3,12:0.2",
        output_tokens="uniform:96:160",
        seed=1,
    )
    run = LoadRun(Endpoint(url=engine.url, model=engine.model), plan_streams(workload))
    burst = BackgroundBurst(run, print)
    burst.narrate()
    while not burst.is_over and sum(recorder.token_count for recorder in run.recorders) < options.after_tokens:
        time.sleep(0.05)
    shots = [(command, on_terminal(command, options.width)) for command in ("status", "ps")]
    burst.cancel()
    burst.wait()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(drawing(shots, options.width))
    print(f"wrote {options.output}")
    return 0


def on_terminal(command: str, width: int) -> str:
    """What a tfctl command prints on a terminal of `width` columns, colours included."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    environment["TERM"] = "xterm-256color"
    arguments = [sys.executable, "-m", "tfctl.main", command]
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=theirs, env=environment)
    os.close(theirs)
    pieces: list[bytes] = []
    try:
        while piece := os.read(ours, 65_536):
            pieces.append(piece)
    except OSError:
        pass  # Linux tells the end of a terminal with EIO
    os.close(ours)
    process.wait()
    return b"".join(pieces).decode().replace("\r\n", "\n").rstrip("\n")


def drawing(shots: list[tuple[str, str]], width: int) -> str:
    """The SVG, without Rich's web fonts: a picture must not load anything."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=width, file=nowhere, force_terminal=True, legacy_windows=False)
        for command, printed in shots:
            console.print(Text.assemble(("$ ", "dim"), (f"tfctl {command}", "bold")))
            console.print(Text.from_ansi(printed), no_wrap=True, crop=True)
            console.print()
        svg = console.export_svg(title="TokenFlow", unique_id="live")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas")


if __name__ == "__main__":
    sys.exit(main())

"""The engine's log: turned over, read from its end, followed."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tokenflowd import logfile
from tokenflowd.logfile import LogReader


def test_three_old_logs_are_kept(tmp_path: Path):
    path = tmp_path / "engine.log"
    for number in range(6):
        logfile.rotate(path)
        path.write_text(f"{number}\n")
    assert {file.name: file.read_text().strip() for file in tmp_path.iterdir()} == {
        "engine.log": "5",
        "engine.log.1": "4",
        "engine.log.2": "3",
        "engine.log.3": "2",
    }


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1), max_size=60),
    st.integers(0, 70),
)
def test_last_lines_are_the_last_lines(tmp_path_factory, lines: list[str], count: int):
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    shown = [line for line in lines if line.strip()]
    if len(shown) == len(lines):  # blank lines are not shown, and so would not count
        assert logfile.last_lines(path, count) == (shown[-count:] if count else [])


def test_a_log_larger_than_a_block_is_read_from_its_end(tmp_path: Path):
    path = tmp_path / "log"
    path.write_text("".join(f"line {number} {'x' * 100}\n" for number in range(5000)))
    lines = logfile.last_lines(path, 2000)
    assert (len(lines), lines[0].split()[1], lines[-1].split()[1]) == (2000, "3000", "4999")


def test_no_log_has_no_lines(tmp_path: Path):
    assert logfile.last_lines(tmp_path / "none", 10) == []
    assert LogReader(tmp_path / "none").read() == []


def test_a_progress_bars_drawings_are_lines(tmp_path: Path):
    path = tmp_path / "log"
    path.write_text("\r 0%\r 50%\r100%\ndone\n")
    assert logfile.last_lines(path, 10) == [" 0%", " 50%", "100%", "done"]


def test_reading_goes_on_behind_the_last_lines_and_into_the_next_file(tmp_path: Path):
    path = tmp_path / "engine.log"
    path.write_text("one\ntwo\nthr")
    reader = LogReader(path)
    assert reader.last_lines(1) == ["two"]
    with path.open("a") as file:
        file.write("ee\nfour\n")
    assert reader.read() == ["three", "four"]
    assert reader.read() == []
    with path.open("a") as file:
        file.write("last\n")
    logfile.rotate(path)
    assert reader.read() == ["last"]
    assert reader.read() == []  # moved away, the next not there yet
    path.write_text("new\n")
    assert reader.read() == ["new"]
    reader.close()


def test_a_line_without_an_end_does_not_grow_for_ever(tmp_path: Path):
    path = tmp_path / "log"
    path.write_text("x" * 300_000)
    reader = LogReader(path)
    assert sum(len(line) for _ in range(6) for line in reader.read()) >= 200_000
    reader.close()

"""docs/cli.md holds the help pages as they are."""

from pathlib import Path

from tfctl.reference import BEGIN, END, commands, updated

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_current(home):
    page = PAGE.read_text(encoding="utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert updated(page) == page, "run: python -m tfctl.reference docs/cli.md"


def test_every_command_has_its_section(home):
    page = PAGE.read_text(encoding="utf-8")
    for command in commands():
        assert f"### tfctl {command}".rstrip() + "\n" in page

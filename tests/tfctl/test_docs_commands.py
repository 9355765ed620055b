"""Every command line of tfctl in README and docs is one that tfctl takes."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from tfctl.app import build
from tokenflow.errors import UsageError

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`(tfctl [^`\n]+)`")
END = re.compile(r"\s+#|\s*[;|>]|\s+&")  # a comment, or what the shell does with it
SYNOPSIS = re.compile(r"[\[\]…]|\.\.\.| \| ")


def command_lines() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8").partition("<!-- reference: begin -->")[0]  # what follows is generated
        for block in FENCE.findall(text):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(page.name, line.removeprefix("$ ")) for line in lines if re.match(r"(\$ )?tfctl ", line)]
        found += [(page.name, span) for span in SPAN.findall(FENCE.sub("", text))]
    return sorted({(name, END.split(line)[0]) for name, line in found if not SYNOPSIS.search(END.split(line)[0])})


def parse(words: list[str]) -> None:
    """As far as carrying it out. Raises what tfctl reports as a usage error."""
    command = build()
    context = command.context_class(command, info_name="tfctl")
    while hasattr(command, "get_command"):
        if not words or words[0].startswith("-"):
            return
        name, child, words = command.resolve_command(context, words)
        command, context = child, child.context_class(child, parent=context, info_name=name)
    command.make_context(command.name, list(words), parent=context.parent)


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_tfctl_takes_it(page, line):
    try:
        parse(shlex.split(line)[1:])
    except typer.Exit:
        pass  # --help, --version
    except (typer.TyperException, UsageError) as error:
        pytest.fail(f"{page}: {line}: {error.message}")


def test_there_are_lines_and_a_wrong_one_is_found():
    assert len(command_lines()) > 50
    with pytest.raises(typer.TyperException):
        parse(["events", "--kind", "nosuch"])

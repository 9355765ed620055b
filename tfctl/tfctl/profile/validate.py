"""`tfctl profile validate`"""

from pathlib import Path
from typing import Annotated

import typer

from tfctl.documents import CheckedProfile, ProfileCheckDocument
from tfctl.output import Role, write_json, write_line
from tfctl.profile_names import complete
from tfctl.profiles import check_profiles, find_profile
from tfctl.session import Session
from tokenflow.errors import ConfigurationError


def validate(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            autocompletion=complete,
            metavar="NAME",
            show_default=False,
            help="Names, or paths of files; without any, all.",
        ),
    ] = None,
) -> None:
    """Check profiles as a start does, and show every fault with its line.

    Exit code 78 if there are faults.
    """
    session = Session(ctx)
    for name in names or []:
        if not Path(name).exists():
            find_profile(name)
    checked = check_profiles(names or [])
    if session.as_json:
        write_json(ProfileCheckDocument(profiles=checked))
    elif not session.options.quiet:
        for profile in checked:
            for line in _lines(profile):
                write_line(line if profile.faults else session.look.paint(line, Role.GOOD))
    if any(profile.faults for profile in checked):
        raise typer.Exit(ConfigurationError.exit_code)


def _lines(profile: CheckedProfile) -> list[str]:
    if profile.faults:
        return [fault.text(profile.path) for fault in profile.faults]
    return [f"{profile.path}: valid"]

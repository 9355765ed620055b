"""`tfctl profile list` and `show`"""

import re
from typing import Annotated

import typer

from tfctl.documents import ProfileDocument, ProfilesDocument, ProfileSummary
from tfctl.output import Role, write_json, write_line
from tfctl.profile_names import complete
from tfctl.profiles import find_faults, find_profiles, read_profile
from tfctl.session import Session


def list_profiles(ctx: typer.Context) -> None:
    """List the profiles that can be started."""
    session = Session(ctx)
    found = find_profiles()
    if session.options.quiet and not session.as_json:
        for profile in found:
            write_line(profile.name)
        return
    unreadable = {profile.path for profile in found if profile.error is not None}
    faults = find_faults()
    for profile in found:
        profile.error = profile.error or faults.get(profile.path)
    if session.as_json:
        write_json(ProfilesDocument(profiles=found))
        return
    name_width = max([len("NAME"), *(len(profile.name) for profile in found)])
    origin_width = max([len("ORIGIN"), *(len(profile.origin) for profile in found)])
    write_line(session.look.paint(f"{'NAME':<{name_width}}  {'ORIGIN':<{origin_width}}  DESCRIPTION", Role.FAINT))
    for profile in found:
        text = profile.description or ""
        if profile.error is not None:
            word = "unreadable" if profile.path in unreadable else "invalid"
            text = session.look.paint(f"{word}: {_in_one_line(profile)}", Role.BAD)
        write_line(f"{profile.name:<{name_width}}  {profile.origin:<{origin_width}}  {text}".rstrip())


def _in_one_line(profile: ProfileSummary) -> str:
    """The first fault; its path is the one that `profile show` names."""
    assert profile.error is not None
    first, *others = profile.error.splitlines()
    more = f" (and {len(others)} more)" if others else ""
    if first.startswith(f"{profile.path}:"):
        first = re.sub(r"^(\d+):", r"line \1:", first.removeprefix(f"{profile.path}:")).strip()
    return first + more


def show(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(autocompletion=complete, metavar="NAME", show_default=False, help="See: tfctl profile list."),
    ],
) -> None:
    """Show a profile's contents and where it comes from."""
    session = Session(ctx)
    summary, text, contents = read_profile(name)
    if session.as_json:
        write_json(ProfileDocument(name=summary.name, origin=summary.origin, path=summary.path, contents=contents))
        return
    if not session.options.quiet:
        write_line(session.look.paint(f"# {summary.path} ({summary.origin})", Role.FAINT))
    write_line(text.rstrip("\n"))

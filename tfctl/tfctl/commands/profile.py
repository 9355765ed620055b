"""`tfctl profile`"""

from typing import Annotated

import typer

from tfctl.documents import ProfileDocument, ProfilesDocument
from tfctl.options import Command, group
from tfctl.output import Role, write_json, write_line
from tfctl.profiles import find_profiles, read_profile
from tfctl.session import Session

app = group("List and show profiles.\n\nA profile says which model the engine runs, how, and under which policy.")


@app.command("list", cls=Command)
def list_profiles(ctx: typer.Context) -> None:
    """List the profiles that can be started."""
    session = Session(ctx)
    found = find_profiles()
    if session.as_json:
        write_json(ProfilesDocument(profiles=found))
        return
    if session.options.quiet:
        for profile in found:
            write_line(profile.name)
        return
    name_width = max([len("NAME"), *(len(profile.name) for profile in found)])
    origin_width = max([len("ORIGIN"), *(len(profile.origin) for profile in found)])
    write_line(session.look.paint(f"{'NAME':<{name_width}}  {'ORIGIN':<{origin_width}}  DESCRIPTION", Role.FAINT))
    for profile in found:
        text = profile.description or ""
        if profile.error is not None:
            text = session.look.paint(f"unreadable: {profile.error}", Role.BAD)
        write_line(f"{profile.name:<{name_width}}  {profile.origin:<{origin_width}}  {text}".rstrip())


@app.command(cls=Command)
def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="See: tfctl profile list.")],
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

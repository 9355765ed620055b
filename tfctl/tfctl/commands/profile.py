"""`tfctl profile`"""

from tfctl.options import Command, EngineArgsCommand, group
from tfctl.profile.apply import apply
from tfctl.profile.create import create
from tfctl.profile.diff import diff
from tfctl.profile.listing import list_profiles, show
from tfctl.profile.measure import measure
from tfctl.profile.validate import validate

app = group(
    "List, check, make, compare, apply and measure profiles.\n\n"
    "A profile says which model the engine runs, how, and under which policy."
)
app.command("list", cls=Command)(list_profiles)
app.command(cls=Command)(show)
app.command(cls=Command)(validate)
app.command(cls=Command)(create)
app.command(cls=Command)(diff)
app.command(cls=Command)(apply)
app.command(cls=EngineArgsCommand)(measure)

"""One file per command. A command's module is imported only when that command is used."""

# Name → one line for `tfctl --help`, in the order of the help. Kept here so that the list costs no import;
# a test holds every line against the first line of its command's own help.
SUMMARIES: dict[str, str] = {
    "start": "Start the engine, and the daemon if none runs.",
    "stop": "Stop the engine.",
    "restart": "Stop the engine and start it again.",
    "status": "Show the daemon, the engine and the policy.",
    "ps": "List requests, least runway first.",
    "top": "Watch requests live.",
    "transfers": "Show what is copied between GPU and host.",
    "capacity": "Show what the engine can make against what its readers want.",
    "wait": "Wait until the engine serves, is drained or has stopped.",
    "mode": "Show or set what the policy may do.",
    "tune": "Show or change the policy's values.",
    "pause": "Hold a request until it is resumed.",
    "resume": "Let a held request go on.",
    "abort": "End a request.",
    "explain": "Say why a stream may be paused or not, with every term.",
    "events": "Show what the policy and the operators did.",
    "logs": "Show the engine's log.",
    "metrics": "Print the daemon's metrics, or write them to a file.",
    "bench": "Send streams to a server and measure what their readers get.",
    "simulate": "Try policies on a GPU that is not here.",
    "engine": "Install or show the engine's packages.",
    "profile": "List, check, make, compare, apply and measure profiles.",
    "doctor": "Check the host, the installation, the daemon and the engine.",
    "bugreport": "Collect what a report of a problem needs into one archive.",
    "service": "Run TokenFlow as a service of this host (systemd).",
}

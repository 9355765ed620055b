"""`python -m tokenflow.sglang.launch ARGS`: SGLang's server, with the CPU stand-ins in place where they are needed.

ARGS are those of `sglang.launch_server`. Importing this module installs the stand-ins, and nothing else may be
imported from SGLang before. SGLang starts its scheduler and detokenizer with multiprocessing's `spawn`, which
imports the parent's main module again in each child before it unpickles anything, so the children get them as well.

On a host with SGLang's own dependency set and a GPU nothing is stood in for.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from tokenflow.setup.host import has_gpu
from tokenflow.sglang import keys

_CPU_ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",  # SGLang takes the CPU for a platform only when told to
    # Compiling small host functions costs more than it saves here, and it would need a C++ compiler on the machine.
    "TORCHDYNAMO_DISABLE": "1",
}
_OFFLINE_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def engine_environment(arguments: Sequence[str], has_gpu: bool) -> dict[str, str]:
    """The variables that an engine with these arguments needs where they are not set. Children inherit them."""
    model = option_value(arguments, "--model-path", "--model")
    environment = dict(_OFFLINE_ENVIRONMENT) if model is not None and os.path.isdir(model) else {}
    if not has_gpu or option_value(arguments, "--device") == "cpu":
        environment |= _CPU_ENVIRONMENT
    return environment


def option_value(arguments: Sequence[str], *names: str) -> str | None:
    """The last value given for an option, as `--name value` or `--name=value`; None when it is not given."""
    value = None
    for position, argument in enumerate(arguments):
        name, equals, rest = argument.partition("=")
        if name not in names:
            continue
        if equals:
            value = rest
        elif position + 1 < len(arguments):
            value = arguments[position + 1]
    return value


def set_missing(environment: Mapping[str, str]) -> None:
    """Sets what the operator has not set."""
    for name, value in environment.items():
        os.environ.setdefault(name, value)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the server until it is told to stop; ends its child processes in any case."""
    from sglang.launch_server import run_server
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    load_plugins()
    given = list(sys.argv[1:] if arguments is None else arguments)
    found = keys.find(given, os.environ)
    if found:
        keys.hide()
    server_args = prepare_server_args([*given, *(word for pair in found.items() for word in pair)])
    keys.forget_command(server_args, found)
    try:
        run_server(server_args)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


if __name__ in ("__main__", "__mp_main__"):
    from tokenflow.sglang import output

    output.forgive()
    # Not on a plain import, so that tests and tools may read this module without being changed by it.
    if __name__ == "__main__":
        set_missing(engine_environment(sys.argv[1:], has_gpu()))
    from tokenflow.sglang import standins

    standins.install()

if __name__ == "__main__":
    main()

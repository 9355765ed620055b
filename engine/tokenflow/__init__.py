"""TokenFlow: the policy, the engine side and the messages that tie the parts together."""

from tokenflow.version import __version__

__all__ = ["__version__"]

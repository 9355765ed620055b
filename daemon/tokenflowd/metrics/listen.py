"""Where `/metrics` listens, as the setting says it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listen:
    """A host and a TCP port; port 0 takes a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Listen | None":
        """`127.0.0.1:9464`, `[::1]:9464`; None for an empty text. Raises ValueError."""
        if not text:
            return None
        host, separator, port = text.rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        if not separator or not host or (":" in host and not is_bracketed):
            raise ValueError(f'must be HOST:PORT (an IPv6 host in brackets) or "" for off, not {text!r}')
        if not (port.isascii() and port.isdigit() and int(port) <= 65535):
            raise ValueError(f"{port!r} is no port")
        return cls(host.strip("[]"), int(port))

    def at(self, port: int) -> str:
        """As it stands in a URL, with the port that was taken."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def __str__(self) -> str:
        return self.at(self.port)

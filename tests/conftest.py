"""What holds for all tests."""

import signal


def pytest_configure() -> None:
    """Shells start jobs in the background with SIGINT ignored, and programs hand that on: no Ctrl-C that a test sends
    would ever arrive."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

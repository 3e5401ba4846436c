"""The command line in this process."""

from gradreg.cli import main


def status(arguments: list[str]) -> int:
    """The exit status of a command: a number, never a text that would be printed."""
    try:
        main(arguments)
    except SystemExit as stop:
        code = stop.code
    else:
        return 0
    assert isinstance(code, int)
    return code

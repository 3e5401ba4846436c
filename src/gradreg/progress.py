"""One progress bar for all long work: on a terminal, in a notebook, and nowhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from time import perf_counter
from typing import TYPE_CHECKING, Any

from gradreg.checks.scalars import shown as words_of
from gradreg.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""

# A notebook keeps what is drawn in its file and sends each change to a browser: seldom, and not for short work.
_PATIENCE = 1.0
_EVERY = 0.25


class Bar:
    """Where progress is shown; this one shows nothing."""

    @property
    def due(self) -> bool:
        """Whether a call now would be seen, so that its note is worth the making."""
        return False

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """So much is done, of so much."""


@contextmanager
def bar(title: str, console: "Console | None" = None) -> Iterator[Bar]:
    """A bar with an ETA: by `console` on a terminal, and in a notebook also without one, unless it is quiet."""
    if console is not None and console.quiet:
        yield Bar()
    elif in_notebook():
        shown = _NotebookBar(title)
        yield shown
        shown.end()
    elif console is not None and console.is_terminal:
        with _rich_bar(title, console) as on_terminal:
            yield on_terminal
    else:
        yield Bar()


@contextmanager
def reported(title: str, wanted: "Progress | bool | None") -> Iterator[Progress]:
    """What a function's `progress` asks for: a callback, a bar (True), a bar in notebooks (None), none (False)."""
    if wanted is None:
        with bar(title) as shown:
            yield shown
    elif wanted is True:
        from rich.console import Console

        with bar(title, Console(stderr=True)) as shown:
            yield shown
    elif wanted is False:
        yield Bar()
    elif callable(wanted):
        yield wanted
    else:
        raise ConfigError(f"progress must be True, False or a function of (done, total); got {words_of(wanted)}.")


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this; IPython in a terminal has none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class _TerminalBar(Bar):
    def __init__(self, update: Callable[..., None]) -> None:
        self._update = update

    @property
    def due(self) -> bool:
        return True

    def __call__(self, done: int, total: int, note: str = "") -> None:
        self._update(completed=done, total=total, note=note)


@contextmanager
def _rich_bar(title: str, console: "Console") -> Iterator[Bar]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    note = TextColumn("{task.fields[note]}", markup=False)
    columns = TextColumn(title, markup=False), BarColumn(), MofNCompleteColumn(), note, TimeRemainingColumn()
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task("", total=None, note="")
        yield _TerminalBar(lambda **change: bars.update(task, **change))


class _NotebookBar(Bar):
    """A line that is replaced in place by plain HTML: rich's own needs ipywidgets, and shows nothing without."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._begun = self._drawn = perf_counter()
        self._first: int | None = None
        self._last: tuple[int, int, str] | None = None
        self._handle: Any = None

    @property
    def due(self) -> bool:
        now = perf_counter()
        return now - self._begun >= _PATIENCE and now - self._drawn >= _EVERY

    def __call__(self, done: int, total: int, note: str = "") -> None:
        self._first = done if self._first is None else self._first
        self._last = done, total, note or (self._last[2] if self._last else "")
        if self.due:
            self._draw(*self._last)

    def end(self) -> None:
        """What was shown stays, as it ended; a stage that was over at once has shown nothing."""
        if self._last is not None and self._handle is not None:
            self._draw(*self._last)

    def _draw(self, done: int, total: int, note: str) -> None:
        from IPython.display import display

        now = perf_counter()
        gained, left = done - (self._first or 0), total - done
        rest = (now - self._begun) * left / gained if gained > 0 else None
        time = f"{_clock(now - self._begun)}" if left <= 0 else "" if rest is None else f"{_clock(rest)} left"
        words = "  ".join(part for part in (f"{done}/{total}", note, time) if part)
        meter = f'<progress value="{done}" max="{max(total, 1)}"></progress>'
        html = f"<div>{escape(self._title)} {meter} {escape(words)}</div>"
        shown = {"text/plain": f"{self._title} {words}", "text/html": html}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)
        self._drawn = now


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

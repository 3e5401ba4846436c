"""Links from a page to a file of the repository that is no page: on the site they are the file's name, as code.

The same pages are read in the repository, where such links lead somewhere. A file that does not exist is a warning, and
the site is built with warnings as errors.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\./[^)#]*)(#[^)]*)?\)")
_log = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, bool]:
    """Rewrite the source of every page as it is read."""
    app.connect("source-read", _rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _rewrite(app: Sphinx, page: str, source: list[str]) -> None:
    top, folder = Path(app.srcdir), (Path(app.srcdir) / page).parent

    def plain(link: re.Match[str]) -> str:
        words, address, _ = link.groups()
        target = (folder / address).resolve()
        if target.is_relative_to(top):
            return link[0]
        name = target.relative_to(top.parent).as_posix() if target.is_relative_to(top.parent) else address
        if not target.exists():
            _log.warning("there is no %s in the repository", name, location=page)
        return f"`{name}`" if words.strip("`/") in (name, target.name) else f"{words} (`{name}`)"

    source[0] = _LINK.sub(plain, source[0])

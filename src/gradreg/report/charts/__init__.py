"""Charts, each described once: `svg` draws it for the page, `plot` for the files of a paper."""

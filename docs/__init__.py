"""The documents, and in `docs.make` what makes their tables and figures again; not part of the wheel."""

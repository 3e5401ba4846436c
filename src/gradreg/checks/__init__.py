"""Checks of what a user passes, before any work: one sentence says what was expected and what was given."""

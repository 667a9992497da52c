# SPDX-License-Identifier: GPL-2.0-or-later
"""What may go wrong in a way that the user can do something about."""


class BatchflushError(Exception):
    """One sentence that says what is wrong, and optionally what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(BatchflushError):
    """An argument on the command line makes no sense: exit code 2."""

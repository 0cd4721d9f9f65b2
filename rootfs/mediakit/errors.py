"""The one error that mediakit raises on purpose."""


class MediaError(Exception):
    """What was wrong, and what to do about it. The text is for the reader."""

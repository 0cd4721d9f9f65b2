"""Exact, repeatable edits of pictures and video, in five lines instead of fifty.

    from mediakit import picture, tone, geometry, cutout, compose, batch   # photo-editing
    from mediakit import video, graphics, captions                        # video-compositing

Functions take values and return new ones; nothing is changed in place, nothing
is fetched, and the same input gives the same bytes. What can't be done raises
MediaError, whose text names the file and says what to change.
"""

from .errors import MediaError

__version__ = "1.0"
__all__ = ["MediaError"]

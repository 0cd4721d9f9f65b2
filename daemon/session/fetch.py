"""Downloads a URL to a file: fetch.py URL FILE LIMIT.

It runs in the sandbox, so that the gate decides what it reaches. What it
prints are JSON lines: {"bytes", "total"} on the way, and {"error"} or
{"done": BYTES} at the end. A connection that breaks is taken up where it broke, if the
server names the version of what it sends; else from the beginning.
"""

import http.client
import json
import sys
import time
import urllib.error
import urllib.request

TIMEOUT = 30  # seconds without a byte
TRIES = 5  # in a row without a byte more
CHUNK = 256 << 10
EVERY = 0.5  # seconds between two words about the progress
TRANSIENT = {408, 429, 500, 502, 503, 504}


class Refused(Exception):
    """What trying again does not help against."""


def opener():
    """Speaks HTTP and nothing else: no files, no FTP, no proxies."""
    o = urllib.request.OpenerDirector()
    for handler in (urllib.request.HTTPHandler, urllib.request.HTTPSHandler, urllib.request.HTTPDefaultErrorHandler,
                    urllib.request.HTTPRedirectHandler, urllib.request.HTTPErrorProcessor, urllib.request.UnknownHandler):
        o.add_handler(handler())
    return o


class Download:
    def __init__(self, url, file, limit):
        self.url, self.file, self.limit = url, file, limit
        self.opener = opener()
        self.got, self.total, self.version, self.said = 0, None, None, 0.0

    def run(self):
        tries = 0
        while True:
            before = self.got
            try:
                self.once()
                return
            except urllib.error.HTTPError as e:
                if e.code == 416:  # it is another file by now
                    self.restart()
                elif e.code not in TRANSIENT:
                    raise Refused(f"the server answered {e.code} {e.reason}") from e
                why = f"the server answered {e.code}"
            except (OSError, http.client.HTTPException) as e:
                why = str(getattr(e, "reason", e)) or type(e).__name__
                if self.got == 0 and before == 0:
                    raise Refused(why) from e
            tries = 0 if self.got > before else tries + 1
            if tries >= TRIES:
                raise Refused(f"{why}, {tries} times in a row")
            time.sleep(0.2 * 2 ** tries)

    def restart(self):
        self.file.seek(0)
        self.file.truncate()
        self.got, self.version = 0, None

    def once(self):
        headers = {"User-Agent": "media-sandbox", "Accept-Encoding": "identity"}
        if self.got and self.version:
            headers["Range"] = f"bytes={self.got}-"
            headers["If-Range"] = self.version
        with self.opener.open(urllib.request.Request(self.url, headers=headers), timeout=TIMEOUT) as r:
            part = r.headers.get("Content-Range", "").startswith(f"bytes {self.got}-")
            if not (r.status == 206 and self.got and part):
                if r.status != 200:
                    raise Refused(f"the server answered {r.status} with another range")
                self.restart()
            tag = r.headers.get("ETag", "")
            self.version = tag if tag.startswith('"') else r.headers.get("Last-Modified")
            length = r.headers.get("Content-Length")
            self.total = self.got + int(length) if length else None
            self.check(self.total or 0)
            self.copy(r)

    def check(self, size):
        if size > self.limit:
            raise Refused(f"it is larger than the limit of {self.limit} bytes")

    def copy(self, r):
        while chunk := r.read1(CHUNK):
            self.check(self.got + len(chunk))
            self.file.write(chunk)
            self.got += len(chunk)
            self.say()
        if self.total is not None and self.got < self.total:
            raise ConnectionError("the connection broke")

    def say(self):
        now = time.monotonic()
        if now - self.said >= EVERY:
            self.said = now
            print(json.dumps({"bytes": self.got, "total": self.total or 0}), flush=True)


def main(url, path, limit):
    try:
        with open(path, "xb") as file:
            d = Download(url, file, int(limit))
            d.run()
        print(json.dumps({"done": d.got}), flush=True)
    except (Refused, OSError, ValueError) as e:
        print(json.dumps({"error": str(e)}), flush=True)


main(*sys.argv[1:])

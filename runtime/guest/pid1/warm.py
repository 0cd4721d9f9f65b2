"""Keeps a Python ready that has done its imports.

PID 1 starts this with one end of a socket pair as descriptor 3. For each byte
that comes in, a child is forked ahead; the child's own socket is sent back. The
child waits there for the script it is to become: then it looks like a fresh
`python3 script.py`, with its imports done.

Children are forked twice, so that PID 1 is their parent.
"""
import atexit
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
import types

CONTROL = 3
MODULES = """
argparse array ast base64 binascii bisect calendar collections colorsys concurrent.futures contextlib copy csv
dataclasses datetime decimal difflib enum fnmatch fractions functools glob gzip hashlib heapq html io itertools
json logging math mimetypes multiprocessing operator os pathlib pickle pprint queue random re shlex shutil sqlite3
ssl stat statistics string struct subprocess tempfile textwrap threading time timeit traceback types typing
unicodedata urllib.parse urllib.request uuid wave xml.etree.ElementTree zipfile zlib
numpy PIL.Image PIL.ImageChops PIL.ImageColor PIL.ImageDraw PIL.ImageEnhance PIL.ImageFilter PIL.ImageFont
PIL.ImageOps PIL.ImageStat PIL.PngImagePlugin PIL.JpegImagePlugin PIL.WebPImagePlugin PIL.GifImagePlugin
matplotlib matplotlib.figure matplotlib.backends.backend_agg
""".split()


def imports():
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            pass  # an image without it; the script will say so itself


def receive(sock):
    """Returns the request and the descriptors of stdin, stdout and stderr."""
    data, fds, _, _ = socket.recv_fds(sock, 1 << 16, 3)
    if not data:
        os._exit(0)  # nobody wants this child any more
    size = int.from_bytes(data[:4], "big")
    data = data[4:]
    while len(data) < size:
        data += sock.recv(1 << 16)
    return json.loads(data), fds


def become(request, fds):
    """Makes this process look like a fresh interpreter."""
    for want, have in enumerate(fds):
        os.dup2(have, want, inheritable=True)
    for fd in fds:
        if fd > 2:
            os.close(fd)
    os.environ.clear()
    os.environ.update(entry.split("=", 1) for entry in request["env"])
    os.chdir(request["dir"])
    script = request["argv"][0]
    sys.argv = list(request["argv"])
    sys.orig_argv = ["python3"] + sys.argv
    sys.path[0] = os.path.dirname(script)
    main = module(script)
    sys.modules["__main__"] = main
    return main, script


def reseed():
    """What the parent drew must not come again in every child."""
    if "random" in sys.modules:
        sys.modules["random"].seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def module(script):
    """Returns the module that a script runs in."""
    main = types.ModuleType("__main__")
    main.__file__ = script
    main.__builtins__ = sys.modules["builtins"]
    main.__cached__ = None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", script)
    main.__annotations__ = {}
    return main


def run(main, script):
    """Runs the script; what it raises looks as if it had been started alone."""
    try:
        with open(script, "rb") as f:
            source = f.read()
        exec(compile(source, script, "exec", dont_inherit=True), main.__dict__)
    except SystemExit:
        raise
    except BaseException as e:
        tb = e.__traceback__
        while tb and tb.tb_frame.f_code.co_filename != script:
            tb = tb.tb_next
        e.__traceback__ = tb
        sys.excepthook(type(e), e, tb)
        if isinstance(e, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        sys.exit(1)


def status(exit):
    """Returns what a SystemExit asks for, as the interpreter reads it."""
    code = exit.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def clear(module):
    """Lets go of a module's objects in the interpreter's order: private names first."""
    names = module.__dict__
    for private in (True, False):
        for name in list(names):
            if name != "__builtins__" and (name.startswith("_") and not name.startswith("__")) == private:
                names[name] = None


def flush():
    """Writes out what was printed. Returns the exit code that the interpreter has
    when it can't, or 0."""
    code = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception:
            code = 120
    return code


def leave(code, before):
    """Ends the process as the interpreter ends itself, but leaves alone what was
    there before the script: taking that apart takes long, and nobody sees it.

    What the script made is let go of, since an object may write a last line, and
    a file that was not closed is written out.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    code = flush() or code
    main = sys.modules.get("__main__")
    made = [m for name, m in list(sys.modules.items()) if name not in before and isinstance(m, types.ModuleType)]
    sys.last_exc = sys.last_value = sys.last_traceback = sys.last_type = None
    gc.collect()
    for module in ([main] if main is not None else []) + made[::-1]:
        clear(module)
    gc.collect()
    flush()
    os._exit(code)


REHEARSAL = """
import io, json, math, os, pathlib, subprocess, sys, time
import numpy as np
from PIL import Image, ImageDraw
def work(n):
    a = np.arange(n * n * 3, dtype=np.uint8).reshape(n, n, 3)
    im = Image.fromarray(a).resize((n // 2, n // 2))
    ImageDraw.Draw(im).line((0, 0, n, n), fill="red")
    return [f"{k}={v:.2f}" for k, v in {"size": im.size[0], "mean": float(a.mean())}.items()]
class Thing:
    def __init__(self):
        self.lines = work(64)
try:
    Thing().missing
except AttributeError as e:
    str(e)
"""


def rehearse():
    """Does once what running a script does. The memory that it writes to is this
    child's own from then on: for a page that is still the parent's, gVisor takes
    a fault and a copy, which would make some hundred of them in the script's time."""
    with open(sys.argv[0], "rb") as f:
        f.read()
    json.loads(json.dumps({"argv": sys.argv, "env": [f"{k}={v}" for k, v in os.environ.items()]}))
    environ = dict(os.environ)
    os.environ.clear()
    os.environ.update(environ)
    reseed()
    main = module(sys.argv[0])
    try:
        exec(compile(REHEARSAL, sys.argv[0], "exec", dont_inherit=True), main.__dict__)
    except ImportError:
        pass  # an image without it
    clear(main)
    frozenset(sys.modules)
    gc.collect()


def fork(control):
    """Forks a child ahead. Returns its socket and None in the child."""
    ours, theirs = socket.socketpair()
    middle = os.fork()
    if middle == 0:
        if os.fork() != 0:
            os._exit(0)
        control.close()
        ours.close()
        os.setsid()
        rehearse()
        theirs.sendall(b"%d\n" % os.getpid())
        return theirs
    theirs.close()
    os.waitpid(middle, 0)
    socket.send_fds(control, [b"c"], [ours.fileno()])
    ours.close()
    return None


def serve():
    """Returns the socket of the child that this process has become."""
    control = socket.socket(fileno=CONTROL)
    while control.recv(1):
        child = fork(control)
        if child is not None:
            return child
    os._exit(0)  # PID 1 is gone


imports()
gc.collect()
gc.freeze()
_sock = serve()
_request, _fds = receive(_sock)
_sock.close()
_before = frozenset(sys.modules)
_code = 0
try:
    run(*become(_request, _fds))
except SystemExit as _exit:
    _code = status(_exit)
    _exit = None
leave(_code, _before)

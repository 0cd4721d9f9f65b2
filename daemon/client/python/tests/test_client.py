"""The client against a real daemon, whose socket MEDIA_SANDBOX_SOCKET names."""

import asyncio
import contextlib
import io
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import mediasandbox as ms
from mediasandbox import transport

DRAW = """
import sys
from PIL import Image
Image.new("RGB", (64, 48), sys.argv[1]).save("/outputs/" + sys.argv[1] + ".png")
print("drew", sys.argv[1])
print("careful", file=sys.stderr)
"""


class Commands(unittest.TestCase):
    def test_python_makes_a_cell(self):
        with ms.Chat("drawn") as chat, tempfile.TemporaryDirectory() as out:
            r = chat.run_python(DRAW, "teal", label="colours")
            self.assertTrue(r.ok, r.stderr)
            self.assertEqual((r.stdout, r.stderr, r.exit_code), ("drew teal\n", "careful\n", 0))
            (cell,) = r.cells
            self.assertEqual((cell.pill, cell.file.width, cell.file.height, cell.record.label), ("image-edit", 64, 48, "colours"))
            target = Path(out) / "a.png"
            self.assertEqual(cell.save(target), target)
            self.assertEqual(target.read_bytes(), cell.read())
            self.assertEqual(cell.save(out), Path(out) / "teal.png")
            self.assertEqual(sorted(p.name for p in Path(out).iterdir()), ["a.png", "teal.png"])
            self.assertTrue(cell.replay().identical)
            self.assertIn("PIL", cell.provenance().python)
            again = chat.run_python(
                "from PIL import Image; print(Image.open('/inputs/teal.png').size)", inputs=[cell], check=True)
            self.assertEqual(again.stdout, "(64, 48)\n")
            self.assertEqual([c.ordinal for c in chat.cells(pill="image-edit", text="teal")], [cell.ordinal])
            whole = io.BytesIO()
            chat.export(whole)
            self.assertEqual(whole.getvalue()[:2], b"PK")

    def test_failure_is_told(self):
        with ms.Chat() as chat:
            r = chat.run(["sh", "-c", "echo no >&2; exit 7"])
            self.assertEqual((r.state, r.exit_code), ("failed", 7))
            with self.assertRaises(ms.CommandFailed) as e:
                chat.run("echo no >&2; exit 7", check=True)
            self.assertIn("no", str(e.exception))
            self.assertEqual(chat.run("sleep 60", timeout=0.3).state, "timed_out")
            chat.delete()
            with self.assertRaises(ms.ChatNotFound):
                chat.record()

    def test_output_comes_as_it_is_printed(self):
        with ms.Chat("streams") as chat:
            cmd = chat.start("echo one; sleep 60; echo two")
            first = next(cmd.output())
            self.assertEqual((first.stream, first.offset, first.data), ("stdout", 0, b"one\n"))
            cmd.cancel()
            self.assertEqual(cmd.wait().state, "canceled")
            self.assertEqual(chat.command(cmd.id).result().stdout, "one\n")

    def test_input_is_streamed(self):
        with ms.Chat("fed") as chat:
            cmd = chat.start(["tr", "a-z", "A-Z"], stream_stdin=True)
            cmd.feed(piece for piece in (b"one ", b"two\n"))
            self.assertEqual(cmd.result().stdout, "ONE TWO\n")
            self.assertEqual(chat.run(["cat"], stdin=b"bytes").stdout, "bytes")

    def test_same_key_is_one_command(self):
        with ms.Chat("keyed") as chat:
            one, two = (chat.start("echo once", key="k1") for _ in range(2))
            self.assertEqual(one.id, two.id)
            with self.assertRaises(ms.IdempotencyConflict):
                chat.start("echo twice", key="k1")

    def test_turns_have_budgets(self):
        with ms.Chat("turned") as chat:
            turn = chat.open_turn("t1")
            self.assertGreater(turn.left_seconds, 0)
            self.assertEqual(chat.run("true", turn="t1").record.turn, "t1")
            chat.open_turn("t2")
            self.assertEqual([t.id for t in chat.turns()], ["t1", "t2"])
            with self.assertRaises(ms.TurnClosed):
                chat.run("true", turn="t1")


class Files(unittest.TestCase):
    def test_files_go_in_and_out(self):
        with ms.Chat("files") as chat, tempfile.TemporaryDirectory() as out:
            source = Path(out) / "in.bin"
            source.write_bytes(bytes(range(256)) * 5000)
            info = chat.put(source)
            self.assertEqual((info.path, info.size), ("/inputs/in.bin", 1_280_000))
            chat.get("/inputs/in.bin", Path(out) / "back.bin")
            self.assertEqual((Path(out) / "back.bin").read_bytes(), source.read_bytes())
            chat.put(b"text", "/workspace/a.txt")
            self.assertEqual(chat.move("/workspace/a.txt", "/workspace/b.txt").path, "/workspace/b.txt")
            self.assertEqual([f.path for f in chat.files()], ["/workspace/b.txt"])
            self.assertEqual(chat.read("/workspace/b.txt"), b"text")
            self.assertEqual(chat.stat("/workspace/b.txt").size, 4)
            chat.remove("/workspace/b.txt")
            with self.assertRaises(ms.FileMissing):
                chat.read("/workspace/b.txt")
            with self.assertRaises(ms.SandboxError):
                chat.get("/workspace/none", Path(out) / "none")
            self.assertEqual(sorted(p.name for p in Path(out).iterdir()), ["back.bin", "in.bin"])

    def test_wrong_input_is_one_clear_error(self):
        with ms.Chat("wrong") as chat:
            with self.assertRaises(ms.InvalidArgument) as e:
                chat.run("true", timeout=601)
            self.assertIn("600", str(e.exception))
            with self.assertRaises(ms.CellNotFound):
                chat.cell(99)
            for bad in ("../x", ""):
                with self.assertRaises(ms.InvalidArgument):
                    ms.Chat(bad)
            with self.assertRaises(ms.InvalidArgument):
                chat.run("true", timeout=0)
            for wrong in ({"inputs": "a.png"}, {"publish": "*.part"}, {"bogus": 1}):
                with self.assertRaises(TypeError) as e:
                    chat.run("true", **wrong)
                self.assertIn(next(iter(wrong)), str(e.exception))
            with self.assertRaises(TypeError):
                chat.run(5)
            self.assertIn("a.png", repr(chat.run("true", inputs=["a.png"])))
        with self.assertRaises(ms.Unreachable) as e:
            ms.Client("/nonexistent/api.sock").info()
        self.assertIn("is sandboxd running?", str(e.exception))


class Away(unittest.TestCase):
    def test_a_daemon_that_stays_away_is_given_up(self):
        line = transport.Transport("/nonexistent/api.sock")
        with mock.patch.object(transport, "RECONNECT_FOR", 0.3):
            began = time.monotonic()
            with self.assertRaises(ms.Unreachable):
                line.again(lambda: line.call("GET", ["info"]), met=True)
            self.assertGreater(time.monotonic() - began, 0.3)
            calls = []

            def broken():
                calls.append(1)
                raise ConnectionResetError("reset")

            with self.assertRaises(ms.StreamCut):
                line.again(broken)
            self.assertGreater(len(calls), 1)


class Events(unittest.TestCase):
    def test_events_follow_the_chat(self):
        with ms.Chat("watched") as chat:
            start, seen = chat.record().last_event, []
            chat.run("echo x >/outputs/x.txt")
            with contextlib.closing(chat.events(after=start)) as events:
                for ev in events:
                    seen.append(ev)
                    if ev.type == "cell.published":
                        break
            self.assertEqual([e.id for e in seen], list(range(start + 1, start + 1 + len(seen))))
            self.assertEqual(seen[-1].cell.file.file_name, "x.txt")

    def test_network_is_narrowed(self):
        with ms.Chat("narrow", network="none") as chat:
            self.assertEqual(chat.network()["mode"], "none")
            self.assertEqual(chat.set_network("allowlist", ["allow *.example.org"])["mode"], "allowlist")


class Async(unittest.IsolatedAsyncioTestCase):
    def test_it_has_the_methods_of_the_client(self):
        for mine, its in ((ms.AsyncChat, ms.Chat), (ms.AsyncRunning, ms.Running)):
            missing = {n for n in vars(its) if not n.startswith("_")} - {n for n in dir(mine)}
            self.assertEqual(missing, set())


class AsyncWork(unittest.IsolatedAsyncioTestCase):
    async def test_the_main_job(self):
        async with ms.AsyncChat("async") as chat:
            r = await chat.run_python(DRAW, "coral")
            self.assertEqual(r.stdout, "drew coral\n")
            with tempfile.TemporaryDirectory() as out:
                saved = await r.cells[0].save(out)
                self.assertEqual(saved.read_bytes(), await r.cells[0].read())
            self.assertTrue((await r.cells[0].replay()).identical)
            many = await asyncio.gather(*(chat.run(["echo", str(i)]) for i in range(4)))
            self.assertEqual([m.stdout for m in many], ["0\n", "1\n", "2\n", "3\n"])

    async def test_a_canceled_task_lets_go(self):
        async with ms.AsyncChat("let-go") as chat:
            cmd = await chat.start("sleep 60")
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(cmd.wait(), 0.3)

            async def follow():
                async for _ in chat.events():
                    pass

            follower = asyncio.create_task(follow())
            await asyncio.sleep(0.3)
            follower.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await follower
            await cmd.cancel()
            self.assertEqual((await cmd.wait()).state, "canceled")
            # No thread waits any more for a daemon that nobody listens to.
            await asyncio.wait_for(asyncio.get_running_loop().shutdown_default_executor(), 20)

    async def test_output(self):
        async with ms.AsyncChat("async-out") as chat:
            cmd = await chat.start("for i in 1 2 3; do echo $i; sleep 0.05; done")
            text = b"".join([c.data async for c in cmd.output()])
            self.assertEqual(text, b"1\n2\n3\n")


if __name__ == "__main__":
    unittest.main()

"""Follows a flood over a line that breaks again and again, whose socket BAD_SOCKET names."""

import os

import mediasandbox as ms

chat = ms.Chat("flood")
command = chat.start("seq 1 200000")
command.wait()
chat.client.transport.path = os.environ["BAD_SOCKET"]
text = b"".join(chunk.data for chunk in command.output())
assert text == b"".join(b"%d\n" % i for i in range(1, 200001)), len(text)

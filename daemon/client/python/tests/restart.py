"""Follows a command and its chat while the daemon is killed and comes back; python_test.go kills it at "up"."""

import threading

import mediasandbox as ms

chat = ms.Chat("kept")
first = chat.record().last_event
told = []


def follow() -> None:
    for event in chat.events(after=first):
        told.append(event)
        if event.type == "command.state" and event.command.ended:
            return


follower = threading.Thread(target=follow, daemon=True)
follower.start()
command = chat.start("for i in $(seq 1 60); do echo $i; sleep 0.1; done")
text = b""
for chunk in command.output():
    if not text:
        print("up", flush=True)
    text += chunk.data
assert text == b"".join(b"%d\n" % i for i in range(1, 61)), text
assert command.record.state == "succeeded", command.record
follower.join(60)
assert not follower.is_alive(), "the events end before the command does"
ids = [event.id for event in told]
assert ids == list(range(first + 1, first + 1 + len(ids))), ids
print("whole", flush=True)

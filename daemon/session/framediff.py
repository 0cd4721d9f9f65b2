"""Says where the pictures of two media files begin to differ.

argv: the original, the other. Prints one JSON object: "frames" compared, and
"first" (from 1) with its "psnr" in dB when one differs.
"""
import json
import subprocess
import sys

original, again = sys.argv[1:]
ffmpeg = subprocess.Popen(
    ["ffmpeg", "-v", "error", "-nostdin", "-i", "file:" + original, "-i", "file:" + again,
     "-lavfi", "[0:v][1:v]psnr=stats_file=-:shortest=1", "-f", "null", "-"],
    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
answer = {"frames": 0}
for line in ffmpeg.stdout:
    fields = dict(part.split(":", 1) for part in line.split() if ":" in part)
    if "n" not in fields:
        continue
    answer["frames"] += 1
    if "first" not in answer and fields.get("psnr_avg", "inf") != "inf":
        answer["first"], answer["psnr"] = int(fields["n"]), float(fields["psnr_avg"])
ffmpeg.wait()
print(json.dumps(answer))

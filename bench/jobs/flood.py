"""A job that prints so many MB a second for so many seconds, and at last how long that took."""

import os
import sys
import time

_MB = 1_000_000

rate, seconds = float(sys.argv[1]), float(sys.argv[2])
rank = os.environ["RANK"]
line = f"rank {rank:<4} {'x' * 90}\n".encode()
piece = line * (_MB // len(line))
began = time.monotonic()
due = began
for _ in range(int(rate * seconds)):
    due += 1 / rate
    left = piece
    while left:
        left = left[os.write(1, left) :]
    time.sleep(max(0.0, due - time.monotonic()))
os.write(1, f"printed in {time.monotonic() - began:.3f} s\n".encode())

"""A job that prints: all ranks together write the lines asked for, made once, in large pieces."""

import os
import sys

_PIECE = 1000

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
lines = int(sys.argv[1]) // ranks
piece = [f"rank {rank:<4} line {number:<4} {'x' * 60}\n" for number in range(_PIECE)]
whole = "".join(piece).encode()
out = sys.stdout.buffer
for _ in range(lines // _PIECE):
    out.write(whole)
out.write("".join(piece[: lines % _PIECE]).encode())
out.flush()

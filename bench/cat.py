"""`cat >/dev/null` that tells, in seconds of the clock, when its first and last bytes came."""

import os
import time

_PIECE = 1 << 17

first = last = None
while os.read(0, _PIECE):
    last = time.time()
    first = first or last
print(first, last)

"""Workers of torchrun; the last one fails once. They import no torch, so that they start fast."""

import os
import time

generation = 1 + int(os.environ["TORCHELASTIC_RESTART_COUNT"])
os.write(1, f"generation {generation}\n".encode())  # in one piece: workers share a pipe
if generation == 1:
    if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
        time.sleep(2)
        os.write(1, f"fault {time.time()}\n".encode())
        os._exit(7)
    time.sleep(600)

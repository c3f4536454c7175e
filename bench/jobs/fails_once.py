"""Workers of torchrun; the last one fails once. They import no torch, so that they start fast."""

import os
import time

generation = 1 + int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("generation", generation, flush=True)
if generation == 1:
    if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
        time.sleep(2)
        print("fault", time.time(), flush=True)
        os._exit(7)
    time.sleep(600)

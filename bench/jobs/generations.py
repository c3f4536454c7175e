"""A job whose first generation waits, or loses its last rank; later generations end at once."""

import os
import sys
import time

from mpi4py import MPI

how, seconds = sys.argv[1], float(sys.argv[2])
generation = int(os.environ.get("ASCENDBOOT_GENERATION", "1"))
world = MPI.COMM_WORLD
world.Barrier()
print("generation", generation, flush=True)
if generation == 1:
    if how == "exit" and world.rank == world.size - 1:
        time.sleep(seconds)
        print("fault", time.time(), flush=True)
        os._exit(7)
    time.sleep(600 if how == "exit" else seconds)

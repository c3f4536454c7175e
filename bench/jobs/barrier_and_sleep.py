"""A job of a few seconds: every rank joins, waits for all others, and sleeps."""

import sys
import time

from mpi4py import MPI

MPI.COMM_WORLD.Barrier()
time.sleep(float(sys.argv[1]))

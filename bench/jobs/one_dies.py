"""A job in which one rank dies when it is told to; all others wait, as they do in a collective."""

import os
import signal
import sys
import time
from pathlib import Path

dying, how, others = sys.argv[1:]
here = Path(__file__).parent
rank = os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
if rank != dying and others == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
(here / f"up.{rank}").touch()
while rank != dying:
    time.sleep(600)
while not (here / "go").exists():
    time.sleep(0.02)
(here / "died").write_text(str(time.time()))
if how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(3)

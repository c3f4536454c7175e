"""A launcher `local`: one node, no MPI, its ranks started by a loop of the shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ascendboot.launch.launchers import Launcher, Traits
from ascendboot.launch.plan import LaunchRequest

LOOP: Final = """\
count=$1; shift
set -m
for ((number = 0; number < count; number++)); do
  LOCAL_NUMBER=$number LOCAL_INDEX=$number LOCAL_COUNT=$count "$@" &
  pids+=("$!")
done
trap 'kill -TERM -- "${pids[@]/#/-}"' TERM
code=0
for pid in "${pids[@]}"; do
  while wait "$pid"; one=$?; kill -0 "$pid" 2>/dev/null; do :; done
  [ "$code" != 0 ] || code=$one
done
exit "$code"
"""


class Local(Launcher):
    """Starts ranks on the primary."""

    traits = Traits(kind="local", rank_variables=("LOCAL_NUMBER", "LOCAL_INDEX", "LOCAL_COUNT"))

    def command(
        self, job: LaunchRequest, program: Sequence[str], node_rank: int
    ) -> tuple[str, ...]:
        return ("bash", "-c", LOOP, "local", str(job.placement.world_size), *program)


LAUNCHER: Final = Local()

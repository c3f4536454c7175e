"""The names of an inventory's variables: none of them disturbs what runs on the nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.launch_cluster import LocalCluster, Screenful

pytestmark = pytest.mark.integration

# Words of the scripts on the nodes, now or once; `env: {rank: 3}` is a valid inventory.
NAMES = """base job_id job rank local_rank world_size events time line rest fields devices place
    command word python workdir table bad script"""


def test_a_variable_may_have_any_name_that_the_inventory_lets_pass(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "base", tmp_path / "runs")
    lines = "".join(f"export {name}='3'\n" for name in NAMES.split())
    (cluster.base / "env" / "node.env").write_text(lines)
    plan = cluster.job(
        "import os, sys\n"
        "print(os.environ['RANK'], [n for n in sys.argv[1:] if os.environ.get(n) != '3'])",
        *NAMES.split(),
        launcher_env={"OMPI_MCA_mpi_yield_when_idle": "1"},
    )
    screen = Screenful()

    report = cluster.run(plan, screen)

    assert (report.exit_code, report.message, report.notes) == (0, "", ())
    assert screen.of(0) + screen.of(1) == [b"0 []", b"1 []"]

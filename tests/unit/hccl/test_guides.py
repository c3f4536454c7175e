"""What the vendor's guides and example scripts set, in inventories."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest
import yaml

from ascendboot.errors import InventoryError
from ascendboot.inventory.load import load
from ascendboot.model.cluster import Cluster
from ascendboot.value import replace
from tests.unit.checks import well
from tests.unit.launch.request import REQUEST, TORCHRUN, command_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/rec-sdk-examples.md").read_text()
PUBLISHED = yaml.safe_load((ROOT / "tests/data/hccl/rec-sdk-examples.yaml").read_text())
OF_DDP_GUIDE = """env: {HCCL_CONNECT_TIMEOUT: 1200, HCCL_EXEC_TIMEOUT: 1800, COMBINED_ENABLE: 1,
  HCCL_WHITELIST_DISABLE: 1, HCCL_IF_BASE_PORT: 29500, HCCL_BUFFSIZE: 209715200}"""


def loaded(folder: Path, text: str) -> Cluster:
    path = folder / "i.yaml"
    path.write_text(f"cluster: c\nnodes: {{n1: {{address: 192.0.2.1}}}}\n{text}")
    return load(path)


def test_one_variable_of_the_ddp_guide_is_refused_and_one_is_a_warning(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match=r'BUFFSIZE: "209715200" is not .* in MB') as refused:
        loaded(tmp_path, OF_DDP_GUIDE)
    assert len(refused.value.problems) == 1
    env = loaded(tmp_path, OF_DDP_GUIDE.replace("209715200", "200")).env
    assert env["COMBINED_ENABLE"] == "1"
    text = "hccl-setting warning lab-[1-2]: HCCL takes ports 29500-29531, and 29500 is PyTorch's"
    assert well.found(replace(well.TWO, env=env), well.facts(1), well.facts(2)).startswith(text)


@pytest.mark.parametrize("example", PUBLISHED)
def test_the_inventory_of_an_example_has_what_its_script_exports(
    example: str, tmp_path: Path
) -> None:
    script, section = PUBLISHED[example], PAGE.split(f"\n## {example}\n")[1].split("\n## ")[0]
    [inventory] = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    cluster = loaded(tmp_path, inventory)
    exports = {name: str(value) for name, value in script["exports"].items()}
    differing = [name for name in exports if cluster.env.get(name) != exports[name]]
    assert differing == script["otherwise"]
    [line] = re.findall(r"^    ascendboot train (.*)", section, re.MULTILINE)
    name, *args = line.replace(" -- ", " ").split()
    assert [name, *args] == script["command"].split()
    path = PurePosixPath(f"{cluster.code_path}/{name}")
    of_kind = TORCHRUN if cluster.launcher == "torchrun" else REQUEST
    request = replace(of_kind, python=cluster.python, script=path, script_args=tuple(args))
    assert command_of(request)[-len(args) - 2 :] == (cluster.python, str(path), *args)
    assert (cluster.launcher, cluster.resource_mode) == tuple(script["starts"])


def test_the_wrappers_of_the_page_extend_the_lists_of_paths() -> None:
    of_root, of_v2 = re.findall(r"(\w+=/opt\S+\n)?(export .*?)exec /", PAGE, re.DOTALL)
    show = 'echo "$PYTHONPATH $LD_LIBRARY_PATH"'
    before = {"PYTHONPATH": "/was", "LD_LIBRARY_PATH": "/had"}
    scripts = [["/bin/bash", "-c", f"{''.join(lines)}{show}"] for lines in (of_root, of_v2)]
    after = [subprocess.check_output(argv, env=before, text=True) for argv in scripts]
    packages = "/opt/buildtools/tf1_env/lib/python3.7/site-packages"
    ours = f"{packages}/mxrec/librec:{packages}/rec_sdk_common/lib"
    assert after == ["/workspace/RecSDK:/was /had\n", f"{ours}:/was {ours}:/usr/local/lib:/had\n"]

"""What could start ranks besides mpirun: Horovod or torch of the job's Python; and ssh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ascendboot.facts.api import Fact, part_of, sections_of
from ascendboot.facts.scripts import COMMON
from ascendboot.parse import horovod, system, torch
from ascendboot.parse.horovod import Horovod
from ascendboot.parse.sshd import Ssh, parse_version
from ascendboot.profiles import profile_paths
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.parse.torch import Torch
    from ascendboot.transport.api import Result

_SCRIPT = "the script that looks for launchers"

TORCH = r"""
import importlib.util, os, sys
def version(name):
    found = importlib.util.find_spec(name)
    if found is None or not found.origin:
        return "-"
    said = {}
    with open(os.path.join(os.path.dirname(found.origin), "version.py")) as file:
        exec(file.read(), said)
    return said["__version__"]
if version("torch") == "-":
    sys.stderr.write("there is no torch for " + sys.executable)
    sys.exit(127)
print(version("torch"), version("torch_npu"))
"""
"""The versions of torch and torch_npu, `-` without one; neither is imported: that takes seconds."""

LAUNCHERS = (
    COMMON
    + r"""
if locate ssh /usr/bin/ssh; then section ssh 0 "$found"; ask_both ssh_version "$found" -V
else section ssh 127 'ssh is neither on PATH nor /usr/bin/ssh'; fi
locate "$1"
run=${found%/*}/horovodrun python=$1 try=$2 torch=$3; shift 3
packages=
for setting; do
  case $setting in
    %*)
      [ -n "$packages" ] || packages=${found%/*/*}/lib/python$(
        "${found:-false}" -c 'import sys; print("%d.%d" % sys.version_info[:2])')/site-packages
      setting=${setting#%}
      export "${setting//'{packages}'/$packages}" ;;
    *) export "$setting" ;;
  esac
done
if [ -n "$torch" ] && [ -n "$found" ]; then ask torch timeout -k 1 30 "$found" -c "$torch"
else section torch 127 "there is no $python"; fi
if [ -n "$found" ] && [ -x "$run" ]; then
  section horovodrun 0 "$run"
  ask horovod_version timeout -k 1 30 "$run" --version
  # It loads whole frameworks: asked only where it decides something.
  [ -z "$try" ] || ask horovod_build timeout -k 1 90 "$run" --check-build
else
  section horovodrun 127 "there is no horovodrun beside $python"
fi
section end 0 ''
"""
)
"""Arguments: the interpreter, something where Horovod is to be tried as well, a Python program that
tells of torch where that is to be asked, NAME=VALUE ...

In a %NAME=VALUE `{packages}` stands for the folder of the interpreter's packages.
"""


def launcher_questions(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """The questions about launchers, by name; they share one run of one script.

    It runs with the environment of the inventory and the profile: Horovod may need their
    LD_LIBRARY_PATH to load.
    """
    is_tried = node == cluster.primary and cluster.launcher in ("auto", "horovod")
    asks_torch = cluster.is_for_torch
    env = cluster.env_of(node)
    # Whoever is on the node sees these words; no launcher needs a secret to be found.
    stated = (f"{n}={value}" for n, value in env.items() if not cluster.is_secret(n, value))
    paths = profile_paths(cluster.profile, "{packages}").items()
    of_profile = (f"%{name}={value}" for name, value in paths if name not in env)
    wanted = ("try" if is_tried else "", TORCH if asks_torch else "")
    words = (cluster.python, *wanted, *stated, *of_profile)
    command = Command(
        argv=("bash", "-c", LAUNCHERS, "ascendboot", *words),
        purpose="look for launchers",
        effect=Effect.READ,
        timeout_s=150.0,
    )
    facts: dict[str, Fact[Any]] = {
        "ssh": Fact("ssh", command, _ssh, "find ssh"),
        "horovod": Fact("horovod", command, _horovod, "find Horovod"),
    }
    if asks_torch:
        facts["torch"] = Fact("torch", command, _torch, "find torch")
    return facts


def _ssh(result: Result) -> Ssh:
    sections = sections_of(result, _SCRIPT)
    path = system.parse_path(part_of(sections, "ssh", _SCRIPT), "path of ssh")
    return Ssh(path, parse_version(part_of(sections, "ssh_version", _SCRIPT)))


def _horovod(result: Result) -> Horovod:
    sections = sections_of(result, _SCRIPT)
    path = system.parse_path(part_of(sections, "horovodrun", _SCRIPT), "path of horovodrun")
    version = horovod.parse_version(part_of(sections, "horovod_version", _SCRIPT))
    if "horovod_build" not in sections:
        return Horovod(path, version)
    build = part_of(sections, "horovod_build", _SCRIPT)
    return Horovod(path, version, horovod.parse_has_mpi(build))


def _torch(result: Result) -> Torch:
    return torch.parse(part_of(sections_of(result, _SCRIPT), "torch", _SCRIPT))

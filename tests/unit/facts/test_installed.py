"""The query for what ascendboot has installed on a node, and the parser of its answer."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.installed import Installed, base_script, installed_query, parse_installed
from ascendboot.templates import script
from tests.fake_transport import Answer

QUESTION = installed_query("lab", with_keys=False)


def seen(stdout: bytes) -> Installed:
    return parse_installed(Answer(stdout).to(QUESTION))


def seen_in(folder: Path) -> Installed:
    """Runs the script with another folder for the cluster."""
    script = QUESTION.argv[2].replace(base_script("lab"), f"b={folder}\n")
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=True)
    return seen(done.stdout)


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("Port 12345", 12345),
        ("Port 12345 # mine", None),
        ("Port", None),
        ("Port http", None),
        ("ListenAddress 192.0.2.1", None),
    ],
)
def test_an_invalid_port_in_the_configuration_is_none(
    tmp_path: Path, line: str, port: int | None
) -> None:
    (tmp_path / "sshd").mkdir()
    (tmp_path / "sshd/sshd_config").write_text(f"# ours\n{line}\nUsePAM no\n")
    own = seen_in(tmp_path)
    assert (own.port, set(own.files)) == (port, {"sshd/sshd_config"})


_ENDS_AS_IT_IS_READ = """\
sleep 60 & pid=$!
until read -r -d '' name <"/proc/$pid/cmdline" && [ "$name" = sleep ]; do :; done
read() {
  builtin read "$@"
  local code=$?
  { kill -KILL "$pid" && wait "$pid"; } 2>/dev/null
  return "$code"
}
"""


@pytest.mark.parametrize(
    ("functions", "call", "told"),
    [
        (script("sshd-functions.sh", b="/none"), 'has_our_config "$pid" || echo none', "none\n"),
        (script("processes.sh"), 'words_of "$pid"; echo "$words"', "sleep\n"),
    ],
    ids=["sshd", "holder"],
)
def test_a_process_may_end_while_its_command_is_read(functions: str, call: str, told: str) -> None:
    script = f"{functions}{_ENDS_AS_IT_IS_READ}{call}"
    argv = ["/bin/bash", "-c", script]
    done = subprocess.run(argv, capture_output=True, check=True, text=True, timeout=300)
    assert done.stdout == told


def test_a_missing_folder_is_an_empty_installation(tmp_path: Path) -> None:
    folder = tmp_path / "absent"
    assert seen_in(folder) == Installed(base=PurePosixPath(folder))


@pytest.mark.parametrize("line", ["mode 9 ./x", "port http", "stray me", "sshd x sha -", "word"])
def test_an_unknown_line_is_quoted(line: str) -> None:
    with pytest.raises(NotUnderstoodError, match=rf'own files: line 2 not understood: "{line}"'):
        seen(f"base /b\n{line}\nend\n".encode())


@pytest.mark.parametrize("name", ["a\rb", "a\x0bb", "a\x0cb", "a\u2028b", "a\x85b"])
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch(mode=0o600)
    assert seen_in(tmp_path).files[name].mode == 0o600

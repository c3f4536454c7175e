"""The scripts about the cluster's table of nft, with a program that keeps one table in a file."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from ascendboot.facts import installed
from ascendboot.setup.reset import by_kind, leftovers_commands
from ascendboot.setup.steps import Change, Firewall
from ascendboot.transport.api import Command, Result
from ascendboot.value import replace
from tests.here import Here, node_here

RULES = "table inet ascendboot_lab { }\n"
LOADED = installed.NftTable("loaded", sha256(RULES.encode()).hexdigest())
_NFT = """\
cd -- "${0%/*}"; echo "$*" >>calls
[ ! -e message ] || { cat message >&2; exit 1; }
case $* in
  'list table inet ascendboot_lab')
    cat table 2>/dev/null || { echo 'Error: No such file or directory' >&2; exit 1; } ;;
  '-f firewall.nft') cat -- "$OLDPWD/firewall.nft" >table ;;
  'delete table inet ascendboot_lab') rm table ;;
  *) exit 9 ;;
esac
"""


class Host:
    """A folder of the cluster and a program nft."""

    def __init__(self, folder: Path) -> None:
        self.base, self.bin = folder / "lab", folder / "bin"
        self.bin.mkdir()
        Here(self.bin).put("nft", _NFT)
        (self.base / "env").mkdir(parents=True)
        (self.base / installed.FIREWALL_RULES).write_text(RULES)
        self.table = self.bin / "table"

    def run(self, command: Command) -> Result:
        """Run a command about the folder."""
        text = command.argv[2].replace(installed.base_script("lab"), f"b={self.base}\n")
        return node_here(programs=self.bin).run(replace(command, argv=("/bin/bash", "-c", text)))

    def own(self, *, wanted: bool = False) -> installed.Installed:
        """What the query finds."""
        query = installed.installed_query("lab", with_keys=False, with_firewall=wanted)
        return installed.parse_installed(self.run(query))

    def seen(self, *, wanted: bool = False) -> installed.NftTable | None:
        """What the query finds of the table."""
        return self.own(wanted=wanted).firewall

    def apply(self, rules: str) -> Result:
        """Apply the step."""
        change = Firewall(cluster="lab", rules=rules).check(self.own(wanted=True))
        assert isinstance(change, Change)
        [command] = change.commands
        return self.run(command)

    def reset(self, *, removes: bool, in_container: bool = False) -> dict[str, list[str]]:
        """List or remove what is left."""
        _, command = leftovers_commands("lab", removes=removes, in_container=in_container)
        kinds = ("base", "ours", "empty", "foreign", "firewall", "sshd", "problem")
        return by_kind(self.run(command), " ".join(kinds))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_nft_is_not_called_on_a_node_that_has_and_needs_no_table(host: Host) -> None:
    assert host.seen() is None
    assert not (host.bin / "calls").exists()


def test_the_table_counts_as_loaded_until_its_listing_differs(host: Host) -> None:
    assert host.seen(wanted=True) == installed.NftTable("absent")
    assert host.apply(RULES).exit_code == 0
    assert (host.seen(), host.seen(wanted=True)) == (LOADED, LOADED)
    host.table.write_text(f"{RULES}# more\n")
    assert host.seen() == installed.NftTable("changed")
    host.table.unlink()
    assert host.seen() == installed.NftTable("absent")
    host.table.write_text(RULES)  # as an operator loads the file at boot
    assert host.seen() == LOADED


def test_other_rules_in_the_file_than_in_the_table_are_not_loaded(host: Host) -> None:
    host.apply(RULES)
    (host.base / installed.FIREWALL_RULES).write_text("other\n")
    assert not host.own().is_closed
    (host.base / installed.FIREWALL_RULES).write_text(RULES)
    assert host.own().is_closed


def test_a_message_of_nft_is_one_line_without_control_characters(host: Host) -> None:
    (host.bin / "message").write_text(f"Operation\x1b[31m not permitted{'x' * 400}\nmore\n")
    seen = host.seen(wanted=True)
    assert seen is not None
    assert (seen.state, seen.detail[:31]) == ("refused", "Operation [31m not permittedxxx")
    assert len(seen.detail) <= 200


def test_the_step_without_rules_removes_the_table_and_its_record(host: Host) -> None:
    host.apply(RULES)
    assert host.apply("").exit_code == 0
    assert not host.table.exists()
    assert host.seen() is None
    (host.bin / "message").write_text("Operation not permitted\n")
    host.table.write_text(RULES)
    failed = host.apply("")
    assert (failed.exit_code, b"Operation not permitted" in failed.stderr) == (1, True)


def test_reset_removes_the_table_on_the_host_and_nothing_of_it_in_a_container(host: Host) -> None:
    host.apply(RULES)
    (host.base / "made").write_text(f"{installed.FIREWALL_RULES}\n")
    table = f"inet {installed.firewall_table('lab')}"
    assert host.reset(removes=False, in_container=True)["firewall"] == []
    assert host.reset(removes=False)["firewall"] == [table]
    assert host.table.exists()
    removed = host.reset(removes=True)
    assert (removed["firewall"], removed["foreign"], removed["problem"]) == ([table], [], [])
    assert not host.table.exists()
    assert not host.base.exists()
    assert host.reset(removes=True)["firewall"] == []


def test_reset_reports_a_table_that_cannot_be_removed(host: Host) -> None:
    host.apply(RULES)
    nft = (host.bin / "nft").read_text().replace(") rm table ;;", ") exit 1 ;;")
    (host.bin / "nft").write_text(nft)
    assert host.reset(removes=True)["problem"] == [
        "could not remove the table inet ascendboot_lab of nft"
    ]

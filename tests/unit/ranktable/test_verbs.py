"""The verbs: flags in, text or JSON out, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from invoke.exceptions import Exit

from ascendboot.cli import ranktable
from ascendboot.cli.ranktable import convert
from tests.unit.ranktable.examples import call

TABLES = Path(__file__).parent.parent.parent / "data/ranktables"
GOOD = str(TABLES / "hccl-doc_A2_v1.0.json")
BAD = str(TABLES / "NEG_version_unknown.json")
NONE = str(TABLES / "hccl-doc_A5_v2.0_TOPOFILE.json")


def test_validate_says_that_all_is_well(capfd: pytest.CaptureFixture[str]) -> None:
    call(ranktable.validate, GOOD, product="a2")
    assert capfd.readouterr().out == f"{GOOD}: valid: version 1.0, checked for A2\n"


@pytest.mark.parametrize(("files", "code"), [([BAD], 1), ([BAD, NONE], 2), ([NONE], 2)])
def test_validate_exits_with_the_worst_of_all_files(
    files: list[str], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Exit) as caught:
        call(ranktable.validate, GOOD, file=files)
    assert caught.value.code == code
    told = [line.partition(":")[0] for line in capfd.readouterr().out.splitlines()]
    assert list(dict.fromkeys(told)) == [GOOD, *files]


def test_validate_as_json_has_nothing_else_on_standard_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(Exit):
        call(ranktable.validate, BAD, json=True)
    out, err = capfd.readouterr()
    document: dict[str, Any] = json.loads(out)
    assert (err, document["exit_code"]) == ("", 1)
    assert [problem["id"] for problem in document["files"][0]["problems"]] == ["version-unknown"]


def test_show_prints_servers_and_ranks(capfd: pytest.CaptureFixture[str]) -> None:
    call(ranktable.show, str(TABLES / "hccl-doc_A3_v1.2_superpod.json"), server="node_2")
    assert capfd.readouterr().out.splitlines() == [
        "version 1.2, 4 ranks on 1 server",
        "",
        "node_2  super pod 1  ranks 8-11",
        "  rank  device  address      super device",
        "     8       0  192.168.3.6  0",
        "     9       1  192.168.3.7  1",
        "    10       2  192.168.3.8  2",
        "    11       3  192.168.3.9  3",
    ]


def test_show_names_the_servers_that_are_there() -> None:
    with pytest.raises(Exit, match="which has node_0, node_1") as caught:
        call(ranktable.show, GOOD, server="node_7")
    assert caught.value.code == 2


def test_show_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    call(ranktable.show, str(TABLES / "hcomm-example_rank_table_v2.0.json"), json=True)
    document = json.loads(capfd.readouterr().out)
    assert (document["version"], document["ranks"][1]) == (
        "2.0",
        {
            "rank": 1,
            "server": "az0-rack0",
            "device": 1,
            "addresses": ["0:223.0.0.28"],
            "super_pod": None,
            "super_device_id": None,
            "local_id": 1,
        },
    )


def test_diff_tells_by_meaning(capfd: pytest.CaptureFixture[str]) -> None:
    manual = str(TABLES / "hccl-doc_910_template1_v1.0.json")
    call(ranktable.diff, str(TABLES / "NEG_int_device_id.json"), manual)
    assert capfd.readouterr().out.endswith(" mean the same\n")
    with pytest.raises(Exit) as caught:
        call(ranktable.diff, str(TABLES / "NEG_duplicate_rank_id.json"), manual)
    assert caught.value.code == 1
    assert capfd.readouterr().out.splitlines() == [
        "rank 1: server_id: node_1 -> node_0",
        "rank 1: device_id: 0 -> 1",
        "rank 1: device_ip: 192.168.2.8 -> 192.168.1.9",
        "rank 2: device: nothing -> node_1 device 0",
    ]
    with pytest.raises(Exit):
        call(ranktable.diff, GOOD, manual, json=True)
    document = json.loads(capfd.readouterr().out)
    assert document["differences"][3] == {
        "where": "rank 3",
        "what": "device_port",
        "first": "16667",
        "second": None,
    }


def test_convert_writes_whole_files_and_overwrites_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json"
    call(convert, str(TABLES / "NEG_int_device_id.json"), output=str(path))
    assert capfd.readouterr().out == f"{path}: written, 4 ranks\n"
    assert path.stat().st_mode & 0o777 == 0o644
    text = path.read_text(encoding="utf-8")
    call(convert, str(path), output=str(path))
    assert path.read_text(encoding="utf-8") == text
    with pytest.raises(Exit, match="it exists with other contents") as caught:
        call(convert, GOOD, output=str(path))
    assert (caught.value.code, path.read_text(encoding="utf-8")) == (2, text)
    call(convert, GOOD, output=str(path), force=True)
    assert "device_port" in path.read_text(encoding="utf-8")
    (folder := tmp_path / "folder.json").mkdir()
    with pytest.raises(Exit, match=f"^{folder}: could not be used: Is a directory"):
        call(convert, GOOD, output=str(folder))


def test_convert_prints_the_table_and_says_elsewhere_what_was_left_out(
    capfd: pytest.CaptureFixture[str],
) -> None:
    call(convert, str(TABLES / "hccl-doc_A3_v1.2_superpod.json"), to="1.0")
    out, err = capfd.readouterr()
    assert json.loads(out)["version"] == "1.0"
    assert err == (
        "left out, because the new generation cannot hold it: super_device_id, super_pod_list\n"
    )
    call(convert, GOOD, to="group-list", json=True)
    document = json.loads(capfd.readouterr().out)
    assert (document["left_out"], document["table"]["group_count"]) == (["device_port"], "1")


def test_convert_writes_nothing_that_would_be_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json"
    with pytest.raises(Exit, match="the new table is refused and was not written") as caught:
        call(convert, str(TABLES / "NEG_duplicate_rank_id.json"), output=str(path))
    assert (caught.value.code, path.exists()) == (1, False)
    assert "error rank-ids" in capfd.readouterr().err
    with pytest.raises(Exit) as caught:
        call(convert, GOOD, product="a5")
    assert caught.value.code == 1
    with pytest.raises(Exit) as caught:
        call(convert, GOOD, output=str(tmp_path / "t.txt"))
    assert "is not a valid .json file" in capfd.readouterr().err


def test_a_hostfile_and_the_hccn_conf_of_its_hosts_make_a_table(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("# DeepSpeed's and Open MPI's form\nn2 slots=2\nn1\n", encoding="utf-8")
    words = []
    for number in (1, 2):
        conf = tmp_path / f"n{number}.conf"
        conf.write_text(
            "".join(f"address_{d}=198.51.100.{10 * number + d}\n" for d in range(number + 1)),
            encoding="utf-8",
        )
        words.append(f"n{number}={conf}")
    call(convert, str(hostfile), hccn_conf=words, json=True)
    servers = json.loads(capfd.readouterr().out)["table"]["server_list"]
    found = {s["server_id"]: [(d["device_ip"], d["rank_id"]) for d in s["device"]] for s in servers}
    assert found == {
        "n2": [("198.51.100.20", "0"), ("198.51.100.21", "1")],
        "n1": [("198.51.100.10", "2"), ("198.51.100.11", "3")],
    }
    (tmp_path / "n1.conf").write_text("address=\n", encoding="utf-8")
    with pytest.raises(Exit, match=r"n1\.conf: could not be read: .*line 1 not understood"):
        call(convert, str(hostfile), hccn_conf=words)
    (tmp_path / "n1.conf").write_bytes(b"address_0=\xff\n")
    with pytest.raises(Exit, match=r"n1\.conf: could not be read: line 1: byte 0xff is not UTF-8"):
        call(convert, str(hostfile), hccn_conf=words)
    with pytest.raises(Exit, match='"n1" is not HOST=FILE'):
        call(convert, str(hostfile), hccn_conf=["n1"])
    with pytest.raises(Exit, match=r"hostfile: is a hostfile; state the .* --hccn-conf HOST=FILE"):
        call(convert, str(hostfile))


@pytest.mark.parametrize("flag", ["product", "job"])
def test_unknown_words_are_wrong_use(flag: str) -> None:
    with pytest.raises(Exit, match=f'--{flag}: "x" is not one of ') as caught:
        call(ranktable.validate, GOOD, **{flag: "x"})
    assert caught.value.code == 2

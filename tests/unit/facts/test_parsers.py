"""Every parser over recorded output: `tests/data/TOOL/VERSION/CASE.txt` means what `.json` says.

Garbage never becomes a value: what a parser does not understand, it refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendboot.errors import AscendbootError, NotUnderstoodError
from ascendboot.facts.parsers import hccn_tool, npu_smi, software, system
from ascendboot.value import as_json

DATA = Path(__file__).parents[2] / "data"

PARSERS: dict[str, Callable[[str], object]] = {
    "npu-smi-info-m": npu_smi.parse_mapping,
    "npu-smi-info": npu_smi.parse_table,
    "npu-smi-spod-info": npu_smi.parse_spod_info,
    "npu-smi-health": npu_smi.parse_device_health,
    "npu-smi-ecc": npu_smi.parse_ecc,
    **{f"hccn_tool-{what}": partial(hccn_tool.parse, what) for what in hccn_tool.QUERIES},
    "hccn_tool-ping": hccn_tool.parse_ping,
    "hccn.conf": lambda text: {"addresses": hccn_tool.parse_conf(text)},
    "ip-addr": system.parse_ip,
    "ss-Hltnp": system.parse_ss,
    "sshd-V": software.parse_sshd_version,
    "mpirun-version": software.parse_openmpi_version,
    "python-version": software.parse_python_version,
    "df": system.parse_disk,
    "uname-srm": system.parse_uname,
}


def outcome(parse: Callable[[str], object], text: str) -> dict[str, Any]:
    try:
        return {"value": json.loads(json.dumps(as_json(parse(text))))}
    except AscendbootError as error:
        return {"error": type(error).__name__, "message": str(error)}


def cases(tool: str) -> list[Path]:
    return sorted((DATA / tool).glob("*/*.txt"))


CASES = [pytest.param(tool, case) for tool in PARSERS for case in cases(tool)]


@pytest.mark.parametrize(
    ("tool", "case"), CASES, ids=lambda p: str(p.relative_to(DATA)) if isinstance(p, Path) else ""
)
def test_recorded_output_means_what_its_json_says(tool: str, case: Path) -> None:
    expected = json.loads(case.with_suffix(".json").read_text())
    assert outcome(PARSERS[tool], case.read_text()) == expected


@pytest.mark.parametrize("tool", PARSERS)
def test_every_parser_has_recorded_output_and_every_recording_a_meaning(tool: str) -> None:
    texts = {case.with_suffix("") for case in cases(tool)}
    meanings = {case.with_suffix("") for case in (DATA / tool).glob("*/*.json")}
    assert len(texts) >= 4
    assert texts == meanings


# The table of npu-smi is searched above its processes, not read as a whole.
WHOLE = sorted(PARSERS.keys() - {"npu-smi-info"})

USUAL = {
    "npu-smi-info-m": "A3-25.3.rc1/usual",
    "npu-smi-spod-info": "A3-25.3/usual",
    "hccn_tool-ip": "910B1-23.0.rc2/usual",
    "hccn_tool-link": "A2-A3-source/up",
    "hccn_tool-tls": "A2-A3-source/on_with_certificate",
    "hccn_tool-ping": "910B-2023/usual",
    "hccn_tool-lldp": "910B/usual",
    "hccn_tool-link_stat": "A2-2025/usual",
    "hccn_tool-stat": "A2-manual/usual",
    "npu-smi-health": "910A-23.0.7/alarm",
    "npu-smi-ecc": "910A-manual/usual",
    "ip-addr": "iproute2-6.1.0/usual",
    "ss-Hltnp": "iproute2-6.1.0/usual",
    "sshd-V": "9.2p1/usual",
    "mpirun-version": "4.1.4/usual",
    "python-version": "3.11.7/usual",
    "df": "coreutils-9.1/usual",
    "uname-srm": "aarch64/usual",
}


def usual(tool: str) -> str:
    return Path(DATA / tool / f"{USUAL.get(tool, 'A2-A3-source/usual')}.txt").read_text()


@pytest.mark.parametrize("tool", PARSERS)
@given(text=st.text())
def test_any_text_is_a_value_or_an_ascendboot_error(tool: str, text: str) -> None:
    assert outcome(PARSERS[tool], text).keys() in ({"value"}, {"error", "message"})


@pytest.mark.parametrize("tool", WHOLE)
@given(data=st.data(), words=st.text(st.characters(codec="ascii", exclude_categories=["C"])))
def test_one_foreign_line_anywhere_is_refused(tool: str, data: st.DataObject, words: str) -> None:
    """Except before and after the answer of a vendor's tool."""
    lines = usual(tool).rstrip("\n").split("\n")
    place = data.draw(st.integers(0, len(lines)))
    text = "\n".join([*lines[:place], f"¿¿¿{words}", *lines[place:], ""])
    if tool.startswith(("npu-smi-", "hccn_tool-")) and place in {0, len(lines)}:
        assert PARSERS[tool](text) == PARSERS[tool](usual(tool))
        return
    with pytest.raises(NotUnderstoodError) as refused:
        PARSERS[tool](text)
    assert str(refused.value).count("not understood") == 1


def test_a_warning_with_a_colon_is_ignored() -> None:
    tool = "npu-smi-spod-info"
    assert PARSERS[tool](f"Warning : driver is old\n{usual(tool)}") == PARSERS[tool](usual(tool))


@given(
    ids=st.lists(st.integers(0, 9999), unique=True), names=st.sampled_from(["Ascend 910B3", "x"])
)
def test_as_many_npus_are_read_as_are_listed(ids: list[int], names: str) -> None:
    rows = [f"\t{i}  0  {i}  {device_id}  {names}" for i, device_id in enumerate(ids)]
    header = "\tNPU ID  Chip ID  Chip Logic ID  Chip Phy-ID  Chip Name"
    found = npu_smi.parse_mapping("\n".join([header, *rows]))
    assert [npu.device_id for npu in found.npus] == sorted(ids)


@given(addresses=st.lists(st.tuples(st.ip_addresses(), st.ip_addresses(v=4)), max_size=4))
def test_every_port_of_a_device_is_read(addresses: list[tuple[object, object]]) -> None:
    text = "".join(f"ipaddr:{ip}\nnetmask:{mask}\n" for ip, mask in addresses)
    assert hccn_tool.parse("ip", text) == tuple(
        hccn_tool.DeviceAddress(str(ip), str(mask)) for ip, mask in addresses
    )

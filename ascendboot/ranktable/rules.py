"""The rules that a rank table must satisfy, and the problem reported for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ascendboot.ranktable.text import JsonPath, shown

Level: TypeAlias = Literal["error", "warning"]
Product: TypeAlias = Literal["910", "a2", "a3", "a5", "310p"]
Job: TypeAlias = Literal["rec-sdk-tf", "mindspore", "torch"]

PRODUCTS: tuple[Product, ...] = ("910", "a2", "a3", "a5", "310p")
JOBS: tuple[Job, ...] = ("rec-sdk-tf", "mindspore", "torch")

ANY, STRINGS, GROUPS = "all", "1.x, group list", "group list"
V1, V12, V2 = "1.x", "1.2", "2.0"
"""Which tables a rule is about."""

CALLED: dict[Product, str] = {
    "910": "910",
    "a2": "A2",
    "a3": "A3",
    "a5": "950",
    "310p": "300I Duo",
}
"""What operators call a product."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule; `hccl` holds what HCCL prints where it refuses, with what it fills in in braces."""

    id: str
    about: str
    meaning: str
    remedy: str
    hccl: str = ""
    hccl_v2: str | None = None
    """The words of the reader of version 2.0, where they are others."""
    level: Level = "error"


GENERAL: tuple[Rule, ...] = (
    # the file
    Rule(
        id="file-name",
        about=ANY,
        meaning="the path must end in `.json`, and `.json` must not stand anywhere else in it",
        hccl="path {path} is not a valid .json file",
        remedy="Rename the file, or the folder it is in",
    ),
    Rule(
        id="file-symlink",
        about=ANY,
        level="warning",
        meaning="a symbolic link: Rec SDK and torch_npu refuse it (an error with `--job`)",
        remedy="Name the file that the link leads to",
    ),
    Rule(
        id="file-writable",
        about=ANY,
        level="warning",
        meaning="group or others may write the file: Rec SDK refuses it (an error with `--job`)",
        remedy="chmod 0644",
    ),
    Rule(
        id="file-bom",
        about=ANY,
        meaning="the text begins with a byte order mark, at which Python's readers (Rec SDK, "
        "MindSpore) fail",
        remedy="Save it as UTF-8 without one",
    ),
    Rule(
        id="doubled-key",
        about=ANY,
        meaning="an object has two members of one name; readers take the last and say nothing",
        remedy="Leave one",
    ),
    # what it is
    Rule(
        id="version-unknown",
        about=ANY,
        meaning="`version` is none that HCCL knows: 1.0, 1.2, 2.0, or no version in a group list",
        hccl="version[{value}] is not support",
        remedy="State the version of the generation, which its fields tell",
    ),
    Rule(
        id="wrong-generation",
        about=ANY,
        meaning="the generation is not the product's: 1.0 is for 910, A2, A3 and 300I Duo, 1.2 for "
        "super pods of A3, 2.0 for 950, group lists for 910",
        hccl="version[{value}] is not support",
        remedy="Write one of the right generation: ranktable.write, ranktable.convert",
    ),
    Rule(
        id="legacy-draft",
        about=V2,
        meaning="the fields of an old draft (`rank_addrs`, `fabric_type`), which also called "
        "itself 2.0",
        hccl='error occurs when parser object of propName "{value}"',
        remedy="Write a new one; what the draft lacks cannot be made from it",
    ),
    # fields
    Rule(
        id="missing",
        about=ANY,
        meaning="a member that HCCL needs is not there",
        hccl="json object has no property called {name}",
        hccl_v2='error occurs when parser object of propName "{name}"',
        remedy="Add it",
    ),
    Rule(
        id="empty",
        about=ANY,
        meaning="a list that must have something in it, or a name, is empty",
        hccl="get property[{name}] size is zero",
        hccl_v2="",
        remedy="Fill it",
    ),
    Rule(
        id="not-a-string",
        about=STRINGS,
        meaning="a value, such as a number, that HCCL wants as a string between double quotes",
        hccl="json object property value of Name[{name}] is not string!",
        remedy="Put it between double quotes (merge_hccl.py writes such numbers)",
    ),
    Rule(
        id="not-an-integer",
        about=V2,
        meaning="a value that HCCL wants as a whole number without quotes, 0 or more",
        hccl='error occurs when parser object of propName "{name}"',
        remedy="Write it as a whole number without quotes",
    ),
    Rule(
        id="wrong-type",
        about=ANY,
        meaning="a value is no list, no object or no text, where HCCL wants one",
        hccl_v2='error occurs when parser object of propName "{name}"',
        remedy="Compare with the example of the generation in HCCL's manual",
    ),
    Rule(
        id="not-digits",
        about=STRINGS,
        meaning="the text of a number is not made of the digits 0 to 9 alone, or is above "
        "4294967295. Rec SDK refuses it; HCCL takes the digits that it begins with",
        hccl="{name}[{value}] is invalid",
        remedy="Write a whole number",
    ),
    Rule(
        id="placeholder",
        about=ANY,
        meaning="a placeholder of a manual was not replaced",
        remedy="Write the real value",
    ),
    Rule(
        id="status",
        about=ANY,
        meaning="`status` is not `completed`: HCCL reads the file again and again for 30 minutes, "
        "and the job seems to hang (a warning in 2.0, where it is not read)",
        hccl="Load ranktable file[{path}] timeout[1800]s",
        remedy='Finish the table and write "completed"',
    ),
    Rule(
        id="count",
        about=ANY,
        meaning="a count is not the length of its list",
        hccl="serverList size[{length}] neq server num[{value}]",
        hccl_v2="failed with rankCount is not equal to rank_list size",
        remedy="Correct the count, or add what is missing from the list",
    ),
    Rule(
        id="address",
        about=ANY,
        meaning="a text is no IPv4 or IPv6 address",
        hccl="ip[{value}] is not a valid ip address",
        hccl_v2="failed with addrs is error.",
        remedy="Correct it: hccn_tool -i ID -ip -g tells a device's",
    ),
    Rule(
        id="port",
        about=ANY,
        meaning="a port is not from 1 to 65535",
        hccl="port number[{value}] exceed max port number[65535]",
        hccl_v2="{name} [{value}] is out of range [1] to [65535]",
        remedy="State one from 1 to 65535",
    ),
    Rule(
        id="too-long",
        about=ANY,
        meaning="a name is longer than HCCL takes: 64 bytes for `server_id`, 127 for other names, "
        "more in 2.0",
        hccl="length[{length}] is more than {most}",
        remedy="Shorten it",
    ),
    # ranks
    Rule(
        id="rank-ids",
        about="1.x, 2.0",
        meaning="the rank ids are not 0 to N-1, each once",
        hccl="rankList[{index}] rankId[{value}] error",
        hccl_v2="failed with rank_id is repeat or out of range",
        remedy="Number the ranks from 0, each number once",
    ),
    Rule(
        id="rank-order",
        about=V1,
        level="warning",
        meaning="the rank ids of a server are not one after the other; HCCL's manual wants them so",
        remedy="Number server by server",
    ),
    Rule(
        id="pod-order",
        about=V12,
        level="warning",
        meaning="the ranks of a super pod are not one after the other; HCCL's manual wants them so",
        remedy="Number super pod by super pod",
    ),
    # devices
    Rule(
        id="device-id",
        about=ANY,
        meaning="the device id is above what the product has: 7 on 910, 15 on A2 and A3, 31 on "
        "300I Duo, 64 on 950. It is the physical id, the N of /dev/davinciN",
        hccl="device_id[{value}] more than {most} is invalid",
        hccl_v2="device_id [{value}] is out of range [0] to [{most}]",
        remedy="State the physical id: npu-smi info -m",
    ),
    Rule(
        id="device-twice",
        about=STRINGS,
        meaning="a server has a device id twice",
        hccl="check ranklist[{index}], device id repeat for one server",
        remedy="Give each device its own id",
    ),
    Rule(
        id="server-twice",
        about=V1,
        meaning="two servers have one `server_id`",
        hccl="[server_id]:[{value}] is already exist",
        remedy="Put all devices of a server under one entry, or give each server its own id",
    ),
    Rule(
        id="device-ip-missing",
        about=STRINGS,
        meaning="a device has no `device_ip`, and there are several servers, or the job sets "
        "HCCL_INTRA_ROCE_ENABLE to 1 (`--intra-roce`). Else not needed inside one super pod of A3",
        hccl="'device_ip' is not set correctly, must be set when multi Server or "
        "HCCL_INTRA_ROCE_ENABLE enabled",
        remedy="State the address that hccn_tool -i ID -ip -g tells",
    ),
    Rule(
        id="address-twice",
        about=ANY,
        meaning="two devices have one address (a warning in 2.0, where HCCL does not look)",
        hccl="[{name}]:[{value}] is already exist",
        remedy="Give each device its own",
    ),
    Rule(
        id="address-family",
        about=STRINGS,
        meaning="IPv4 and IPv6 are mixed among several servers",
        hccl="rank[{rank}] device ip family[{value}] is not same as others[{other}].",
        remedy="Use one family",
    ),
    Rule(
        id="address-count",
        about=V1,
        meaning="devices have different numbers of addresses",
        hccl="device[{index}] size[{value}] neq first device size[{other}] error",
        remedy="State as many for each",
    ),
    Rule(
        id="device-count",
        about=STRINGS,
        level="warning",
        meaning="servers have different numbers of devices: refused on 910, slower on others",
        hccl="devices num of each server error",
        remedy="Use as many devices on each server",
    ),
    Rule(
        id="device-set",
        about=STRINGS,
        level="warning",
        meaning="HCCL's manual: a 910 server takes part with 1, 2, 4 or 8 devices; 2 or 4 are of "
        "one ring, 0-3 or 4-7",
        remedy="Use 1, 2, 4 or 8, of one ring",
    ),
    Rule(
        id="host-ip",
        about=V1,
        level="warning",
        meaning="some servers have a `host_ip` and some do not; an error where rank 0 has one and "
        "no device address, because then all ranks talk over the hosts",
        hccl="hostIp config bettewn ranks is different.",
        remedy="State it for every server, or for none",
    ),
    Rule(
        id="host-ip-family",
        about=V1,
        meaning="IPv4 and IPv6 are mixed among the `host_ip` of several servers",
        hccl='Value {value} for rankTable variable "Device Id of server Id {server}" is invalid',
        remedy="Use one family",
    ),
)

SPECIAL: tuple[Rule, ...] = (
    # A3
    Rule(
        id="backup-self",
        about=V1,
        meaning="a device's backup address is its own",
        hccl="Please do not use self ip as backup ip!",
        remedy="State the address of the other die of its module",
    ),
    Rule(
        id="backup-partner",
        about=V1,
        meaning="a backup address belongs to a device that is not the other die of the same module",
        hccl="link between device phyId[{device}] and backup device phyId[{other}] is not sio link",
        remedy="State the address of the device whose id is next: 0 and 1, 2 and 3 …",
    ),
    Rule(
        id="backup-port",
        about=V1,
        meaning="a backup port is the port that its device uses for itself",
        hccl="backup device port[{value}] should not be the same with device port[{value}]",
        remedy="State another",
    ),
    Rule(
        id="pods-missing",
        about=V12,
        level="warning",
        meaning="a table of version 1.2 says nothing of super pods: HCCL takes it as 1.0",
        remedy='Add super_pod_list, or state version "1.0"',
    ),
    Rule(
        id="pod-twice",
        about=V12,
        meaning="two super pods have one id, or a server is in two",
        hccl="[super_pod_id]:[{value}] is already exist",
        remedy="Put each server into one super pod",
    ),
    Rule(
        id="pod-server",
        about=V12,
        meaning="a super pod names a server that is not in `server_list`",
        hccl="server_id[{value}] is not found in server_list",
        remedy="Correct the name, or add the server",
    ),
    Rule(
        id="pod-servers",
        about=V12,
        meaning="a server is in no super pod",
        hccl="serverNum[{value}] in super_pod_list and serverNum[{other}] in server_list are "
        "inconsistent",
        remedy="Add it to its super pod",
    ),
    Rule(
        id="super-device-twice",
        about=V12,
        meaning="a super device id is there twice in a super pod",
        hccl="superDeviceId[{value}] in superPod[{pod}] is already exist.",
        remedy="State what npu-smi info -t spod-info -i CARD -c CHIP calls SDID",
    ),
    Rule(
        id="super-device-id",
        about=V12,
        level="warning",
        meaning="a super device id contradicts the device id: its lowest 16 bits are the physical "
        "id, bits 18 to 21 the module, bit 16 the die (ids below 65536 are not read so)",
        remedy="State what npu-smi info -t spod-info -i CARD -c CHIP calls SDID",
    ),
    # group list
    Rule(
        id="pod-name-twice",
        about=GROUPS,
        meaning="two instances, or two groups, have one name",
        hccl="[{name}]:[{value}] is already exist",
        remedy="Give each its own",
    ),
    Rule(
        id="instance-name",
        about=GROUPS,
        meaning="`instance_name` in place of `pod_name` and `server_id`, as the Lite Cluster guide "
        "has it",
        hccl="json object index[{index}] has no property called server_id",
        remedy="State pod_name and server_id",
    ),
    # 2.0
    Rule(
        id="out-of-range",
        about=V2,
        meaning="a number or a length is not in its range; the message tells it",
        hccl="{name} [{value}] is out of range [{least}] to [{most}]",
        remedy="State one in the range",
    ),
    Rule(
        id="not-among",
        about=V2,
        meaning="a word is none of those that HCCL knows",
        hccl="failed with Invalid {name}.",
        remedy="Use one of the words that the message lists, in capital letters",
    ),
    Rule(
        id="layers",
        about=V2,
        meaning="the layers of a rank do not ascend",
        hccl="failed with level is not increased in sequence",
        remedy="List each net_layer once, from low to high",
    ),
    Rule(
        id="instance-addresses",
        about=V2,
        meaning="ranks of one net instance have different numbers of addresses in it",
        hccl="failed with the size of rank_addrs with the same id is different. leveId[{value}]",
        remedy="State as many for each",
    ),
    Rule(
        id="replaced",
        about=V2,
        meaning="local id 64 is a backup and needs a `replaced_local_id` that no other rank has; "
        "only one rank can be one",
        hccl="failed with configuring same local_id[{value}] with replaced one simutaneously",
        remedy="Take the replaced rank out, and have one backup",
    ),
    Rule(
        id="local-id-twice",
        about=V2,
        level="warning",
        meaning="two ranks of one net instance of layer 0 have one local id",
        remedy="Give each its own",
    ),
    # the devices of a cluster
    Rule(
        id="server-unknown",
        about=ANY,
        meaning="with `--inventory`: no node has that `server_id`, or, in 2.0, that device in that "
        "net instance of the lowest layer",
        remedy="Correct it, or state it as `server_id` of the node",
    ),
    Rule(
        id="device-gone",
        about="1.x, group list",
        meaning="with `--inventory`: the node has no such device now",
        hccl="",
        remedy="Look at npu-smi info -m, then correct the table or replace the NPU",
    ),
    Rule(
        id="device-ip-stale",
        about="1.x, group list",
        meaning="with `--inventory`: the device has another address now, or none",
        remedy="Correct the table, or set the address: hccn_tool -i ID -ip -s address ADDRESS "
        "netmask MASK",
    ),
    Rule(
        id="hccn-conf-stale",
        about="1.x, group list",
        level="warning",
        meaning="with `--inventory`: `/etc/hccn.conf` has another address, that of the next boot",
        remedy="Find out which is right, set it",
    ),
    Rule(
        id="super-device-stale",
        about=V12,
        meaning="with `--inventory`: the device has another super device id",
        remedy="Write the table anew: ranktable.write",
    ),
    Rule(
        id="level-stale",
        about=V2,
        meaning="with `--inventory`: the server's root info says something else of the device",
        remedy="Write the table anew: ranktable.write",
    ),
    # the job
    Rule(
        id="rec-sdk-devices",
        about=STRINGS,
        level="warning",
        meaning="servers have different device ids, or in another order: Rec SDK takes those of "
        "the first server for all (an error with `--job rec-sdk-tf`)",
        remedy="Use the same devices in the same order on every server",
    ),
    Rule(
        id="rec-sdk-form",
        about="2.0, group list",
        meaning="Rec SDK's own reader needs a `server_list`; with `--job rec-sdk-tf` only",
        remedy="Write a table of version 1.0 or 1.2",
    ),
    Rule(
        id="mindspore-order",
        about=V1,
        meaning="MindSpore numbers the servers in the order of `server_id` as text, in which "
        "10.0.0.10 comes before 10.0.0.9; with `--job mindspore` only",
        remedy="ranktable.write --order server-id, or server ids that sort as wanted",
    ),
)

RULES: tuple[Rule, ...] = (*GENERAL, *SPECIAL)
RULE_OF: dict[str, Rule] = {rule.id: rule for rule in RULES}

BY_PRODUCT = frozenset(
    {
        *("device-id", "device-set", "device-count", "address-family", "address-count"),
        *("super-device-twice", "super-device-id"),
    }
)
"""What a table made from sound facts may still be refused for, by some products."""

POD_ORDER, LOCAL_ID_TWICE = "pod-order", "local-id-twice"


def reference_markdown() -> str:
    """The page `docs/reference/rank-table-rules.md`."""
    rows = "\n".join(
        f"| `{rule.id}` | {rule.level} | {rule.about} | {_cell(rule.meaning)} | {_rule_text(rule)} "
        f"| {_cell(rule.remedy)} |"
        for rule in RULES
    )
    return _PAGE.format(rows=rows)


def _rule_text(rule: Rule) -> str:
    words = dict.fromkeys(text for text in (rule.hccl, rule.hccl_v2) if text)
    return ", in 2.0 ".join(f"`{_cell(text)}`" for text in words) or "nothing"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_PAGE = """\
# Rules of rank tables

What `ranktable.validate` looks at, by the `id` that it prints. An error is what HCCL, or the job
named with `--job`, refuses; a warning stops nothing. Rules of one product are warnings until
`--product` names it. Version 1.2 is A3's, 2.0 is that of 950, a group list (HCCL's "template 2")
that of 910: there the product need not be named. The rules are those of HCCL's own readers (hcomm,
`topoinfo_ranktable*.cc`, `config.cc`, `rank_table_info/*.cc`) and of its manual; those of jobs are
Rec SDK's, torch_npu's and MindSpore's.

| id | level | tables | meaning | HCCL says | what to do |
|---|---|---|---|---|---|
{rows}

## Not rank tables

Topology files (`peer_list`, `edge_list`) and tables of inference systems (`prefill_device_list`,
`server_group_list`) are recognised and named; the exit code is 2, as for text that is not JSON.
Comments, commas before a bracket, NaN and the like are named with line and column. A file may have
256 MiB.
"""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing found, and where in the document."""

    id: str
    level: Level
    path: JsonPath
    text: str
    hccl: str = ""
    """What HCCL would print; empty where it says nothing."""

    @property
    def remedy(self) -> str:
        """What to do."""
        return RULE_OF[self.id].remedy

    @property
    def where(self) -> str:
        """The place in the document, as people write it."""
        return shown(self.path)


@dataclass
class TableCheck:
    """What a table is checked for, and the problems found so far."""

    product: Product | None = None
    job: Job | None = None
    intra_roce: bool = False
    """Whether ranks of one server talk over RoCE, too (HCCL_INTRA_ROCE_ENABLE)."""
    is_v2: bool = False
    """Whether HCCL reads the table as version 2.0, which has other messages."""
    problems: list[Problem] = field(default_factory=list)

    def report(
        self,
        rule_id: str,
        path: JsonPath,
        text: str,
        /,
        *,
        level: Level | None = None,
        hccl: str | None = None,
        **details: object,
    ) -> None:
        """Add a problem; `hccl` is HCCL's message, or `details` fill in the rule's.

        HCCL prints only what it refuses, so a warning has no message of HCCL.
        """
        rule = RULE_OF[rule_id]
        level = level or rule.level
        message = ""
        if level == "error":
            template = rule.hccl_v2 if self.is_v2 and rule.hccl_v2 is not None else rule.hccl
            message = template.format(**details) if hccl is None else hccl
        self.problems.append(Problem(id=rule_id, level=level, path=path, text=text, hccl=message))

    def level_on(self, product: Product) -> Level | None:
        """The level of a rule of one product: none on others, a warning on an unknown one."""
        if self.product is None:
            return "warning"
        return "error" if self.product == product else None

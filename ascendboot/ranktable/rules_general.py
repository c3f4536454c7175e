"""Rules of files, fields, ranks and devices, which most generations share."""

from __future__ import annotations

from ascendboot.ranktable.rule import ANY, STRINGS, V1, V2, V12, Rule

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

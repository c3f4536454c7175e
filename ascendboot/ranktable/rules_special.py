"""Rules of A3's super pods, group lists, 950, a cluster's devices, and training stacks."""

from __future__ import annotations

from ascendboot.ranktable.rule import ANY, GROUPS, STRINGS, V1, V2, V12, Rule

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

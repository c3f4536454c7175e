"""Files of other tools: what is read, what is named as left out, what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ascendboot.errors import AscendbootError
from ascendboot.inventory.sources import hosts_of

NO_KEY = "left out: an inventory has no such key"
KEPT_OUT = "left out: a secret; log in with a key: ssh-copy-id puts yours on the nodes"
INI = """\
head ansible_host=192.0.2.1 ansible_ssh_user="root" # the first
[web]
w[01:02] ansible_port=2222
[web:vars]
ansible_user = me
ansible_ssh_pass='abc'
leaf=l1
[both:children]
web
[both:vars]
ansible_user=outer
ansible_ssh_private_key_file=~/.ssh/k
"""
OF_INI = {
    "head": {"address": "192.0.2.1", "user": "root"},
    "w01": {"address": "w01", "port": 2222, "user": "me", "identity": "~/.ssh/k"},
    "w02": {"address": "w02", "port": 2222, "user": "me", "identity": "~/.ssh/k"},
}
YAML = """\
all:
  vars: {ansible_user: root, ansible_password: !vault xyz}
  children:
    web:
      hosts:
        w1: {ansible_port: "{{ p }}", ansible_ssh_common_args: -o ProxyJump=root@j:22}
        here: {ansible_connection: local}
        w2:
    empty:
"""
DEPLOYER = """\
[worker]
192.0.2.2 ansible_ssh_user="root" ansible_ssh_pass="te st#1" npu_num=8
[worker:vars]
ansible_become_password=x
"""


def read(text: str) -> tuple[dict[str, Any], list[str]]:
    Path("f").write_text(text)
    hosts, notes = hosts_of((), Path("f"))
    return {host.name: host.keys for host in hosts}, notes


@pytest.mark.parametrize(
    ("text", "hosts", "notes"),
    [
        (INI, OF_INI, [f"f:6: ansible_ssh_pass: {KEPT_OUT}", f"f:7: leaf: {NO_KEY}"]),
        (
            YAML,
            {"w1": {"user": "root", "jump": "root@j:22"}, "w2": {"user": "root"}},
            [
                f"f:2: ansible_password: {KEPT_OUT}",
                "f:6: ansible_port: left out: a template of Ansible; state its value",
                "f:7: here: left out: it is not reached by SSH; state its address",
            ],
        ),
        (
            DEPLOYER,
            {"192.0.2.2": {"address": "192.0.2.2", "user": "root"}},
            [
                f"f:2: ansible_ssh_pass: {KEPT_OUT}",
                f"f:2: npu_num: {NO_KEY}",
                "f:4: ansible_become_password: left out: a secret; `sudo: ask` prompts for it",
            ],
        ),
        (
            "a slots=8 # x\nme@b:22 slots = 4 max_slots=16\n",
            {
                "a": {"address": "a", "devices": 8},
                "b": {"address": "b", "user": "me", "port": 22, "devices": 4},
            },
            [],
        ),
        (
            '{"_meta": {"hostvars": {"b": {"ansible_connection": local}}}, "x": {"hosts": ["a"]}}',
            {"a": {}},
            ["f:1: b: left out: it is not reached by SSH; state its address"],
        ),
        ("[2001:db8::1]:2222\nb\n", {"2001:db8::1": {"port": 2222}, "b": {}}, []),
        (
            "Host *\n  User x\nhost=a b*\n  HostName 192.0.2.1\nInclude more\n",
            {"a": {"address": "a"}},
            ["f:5: Include more: left out: it may name more hosts; name them as HOST"],
        ),
    ],
    ids=["ini", "yaml", "ascend-deployer", "slots", "meta", "plain", "ssh"],
)
def test_files_of_other_tools(text: str, hosts: dict[str, Any], notes: list[str]) -> None:
    addressed = {name: {"address": name, **keys} for name, keys in hosts.items()}
    assert read(text) == (addressed, notes)


WHY_NOT = "its ProxyCommand: no program is run to connect; state ProxyJump, or `ssh -W"


@pytest.mark.parametrize(
    ("arguments", "jump"),
    [
        ('-o ProxyCommand="ssh -W %h:%p -q me@b.x"', "me@b.x"),
        (
            "-C -o ProxyCommand='ssh -p 2222 -l me -q -W %h:%p b.x' -o ControlMaster=no",
            "me@b.x:2222",
        ),
        ("-o 'ProxyCommand /usr/bin/ssh me@b.x -o StrictHostKeyChecking=no -W [%h]:%p'", "me@b.x"),
        ("-oProxyCommand='exec ssh -W %h:%p bastion'", "bastion:22"),
        ("-o ProxyJump=bastion", "bastion:22"),
        ("-J w2", "w2"),
        ("-o ProxyCommand='ssh -W %h:%p me@2001:db8::1 -p 2222'", "me@[2001:db8::1]:2222"),
        ("-o ProxyCommand='ssh -W %h:%p %r@b.x'", WHY_NOT),
        ("-o ProxyJump=none", "an inventory has no such key"),
        ("-o ProxyCommand='nc -x proxy %h %p'", WHY_NOT),
        ("-o ProxyCommand='ssh -i key -W %h:%p b.x'", WHY_NOT),
        ("-o ProxyCommand='ssh -J a@c.x -W %h:%p b.x'", WHY_NOT),
        ("-o ProxyCommand='ssh b.x nc %h %p'", WHY_NOT),
        ("-o ProxyCommand='ssh -W %h:%p me@b.x", "its quotes do not pair up"),
        ("-o ProxyJump=a@b.x,c.x", "a node has one `jump`; state the hosts in ~/.ssh/config"),
        ("-o ControlMaster=auto", "an inventory has no such key"),
    ],
)
def test_a_proxy_command_that_equals_a_jump_host_is_one(arguments: str, jump: str) -> None:
    quoted = arguments.replace("\\", "\\\\").replace('"', '\\"')
    doubled = arguments.replace("'", "''")
    outer = "'" if '"' in arguments else '"'
    forms = [
        f"[w]\nw1\nw2\n[w:vars]\nansible_ssh_common_args = {outer}{arguments}{outer}\n",
        f'[w]\nw1 ansible_ssh_common_args="{quoted}"\nw2\n',
        f'all: {{hosts: {{w1: {{ansible_ssh_extra_args: "{quoted}"}}, w2: }}}}\n',
        f"all:\n  hosts: {{w1: {{ansible_ssh_args: '{doubled}'}}, w2: }}\n",
    ]
    for text in forms:
        hosts, notes = read(text)
        if " " in jump:
            assert "jump" not in hosts["w1"], text
            assert f"args: left out: {jump}" in notes[0], text
        else:
            assert (hosts["w1"]["jump"], notes) == (jump, []), text


def written_by_ansible(*form: str) -> str:
    program = Path(sys.executable).with_name("ansible-inventory")
    argv = [str(program), "-i", "i.ini", *form]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("form", [("--list",), ("--list", "--yaml")], ids=["json", "yaml"])
def test_what_ansible_writes_reads_as_the_file_itself(form: tuple[str, ...]) -> None:
    Path("i.ini").write_text(INI)
    assert read(written_by_ansible(*form))[0] == OF_INI
    hosts, _ = hosts_of((), Path("f"))
    assert {host.name: host.groups for host in hosts if host.groups} == {
        "w01": ("both", "web"),
        "w02": ("both", "web"),
    }


@pytest.mark.parametrize(
    ("text", "groups", "lines"),
    [
        ("[both]\na\nb\n[t:children]\nboth\n", ("both", "t"), {}),
        ("[primary]\na\n[gpu]\na\nb\n[all:vars]\nx=y\n", ("gpu",), {}),
        ("[a b]\na\n[.x]\na\n[_x:children]\n.x\n", (), {"a b": 1, ".x": 3, "_x": 5}),
        ("all:\n  children:\n    gpu:\n      hosts: {a: }\n", ("gpu",), {}),
        ("all:\n  children:\n    -bad:\n      hosts: {a: }\n", (), {"-bad": 3}),
    ],
)
def test_groups_of_all_hosts_are_taken_over(
    text: str, groups: tuple[str, ...], lines: dict[str, int]
) -> None:
    Path("f").write_text(text)
    hosts, notes = hosts_of((), Path("f"))
    assert {tuple(sorted(host.groups)) for host in hosts} == {groups}
    why = "left out: names have letters, digits, - _ . and begin with a letter or digit"
    found = [note for note in notes if "group" in note]
    assert sorted(found) == sorted(f"f:{n}: group {name}: {why}" for name, n in lines.items())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "n1 ansible_host=192.0.2.1\nn2 ansible_host=192.0.2.2\nn3 ansible_host=192.0.2.1\n",
            (
                "f:3: n3 has the same address as n1 (f:1): 192.0.2.1; name the hosts that you "
                "want: init n1 --from f"
            ),
        ),
        ("a:8\n", 'f:1: "a:8": 8 slots, as in MPICH, or a port? write a slots=8, or'),
        ("[a:children]\nb\n[b:children]\na\n[a]\nx\n", "f: groups contain each other: a > b > a;"),
        ("cluster: a\nnodes: {}\n", "f: is an inventory of ascendboot already;"),
        ("hello pass word\n", 'f:1: "hello pass word" is not understood; expected hosts,'),
        ("# nothing\n", "f: names no host; expected hosts,"),
        ("[w]\nlocalhost ansible_connection=local\n", "f:2: localhost: left out: it is not"),
        ("[w:x]\n", "f:1: [w:x]: no such section; write :vars or :children"),
        ('[w]\na x="b\n', "f:2: no closing quotation; check the quotes"),
        ("a\na\n", "f:2: a stands in f:1 too; keep one"),
        ("w[1-[2]]\n", 'f:1: "w[1-[2]]": its brackets do not pair up;'),
        ("300.1.1.1\n", 'f:1: "300.1.1.1" is not an IP address'),
        ("x@y@z\n", 'f:1: "x@y@z" is no host; write NAME, USER@NAME or USER@NAME:PORT'),
        ("\x00", "f:1: the control character U+0000 stands here; remove it"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(AscendbootError) as caught:
        read(text)
    assert str(caught.value).startswith(why)
    assert caught.value.exit_code == 2


def beside(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def test_variables_beside_an_inventory_count_as_in_ansible() -> None:
    Path("i.ini").write_text(
        "b1 ansible_user=ini ansible_port=1\n[a]\nb1\n[b:vars]\nansible_user=below\n"
        "[b]\nb[1:2]\n[z:children]\na\n[y:children]\nb\n[b:vars]\nansible_port=2\n"
    )
    beside(
        {
            "group_vars/all.yml": "ansible_user: every\nansible_port: 3\n",
            "group_vars/all.json": '{"ansible_port": 4}',  # after .yml: not read
            "group_vars/z/10.yml": "ansible_host: 192.0.2.10\n",
            "group_vars/z/.hidden": "ansible_host: 192.0.2.11\n",
            "group_vars/z/20": "ansible_host: 192.0.2.12\n",
            "group_vars/z/inner/backup.yml~": "ansible_host: 192.0.2.13\n",
            "group_vars/a": "ansible_ssh_private_key_file: /a\n",
            "group_vars/b.yaml": "ansible_ssh_private_key_file: /b\n",
            "host_vars/b1.yml": "---\nansible_port: 5\n",
            "host_vars/b2.yml": "# nothing\n---\n",
        }
    )
    hosts, notes = hosts_of((), Path("i.ini"))
    found = {host.name: host.keys for host in hosts}
    assert found == {
        "b1": {"address": "192.0.2.12", "user": "ini", "port": 5, "identity": "/b"},
        "b2": {"address": "b2", "user": "every", "port": 3, "identity": "/b"},
    }
    assert notes == []
    Path("elsewhere").mkdir()
    Path("elsewhere/hosts.json").write_text(written_by_ansible("--list"))
    merged, _ = hosts_of((), Path("elsewhere/hosts.json"))
    assert {host.name: host.keys for host in merged} == found


def test_what_is_not_read_beside_an_inventory_is_named() -> None:
    beside(
        {
            "group_vars/all/vault.yml": "$ANSIBLE_VAULT;1.1;AES256\n6162\n",
            "group_vars/all/vars.yml": (
                "db: {password: x}\nansible_user: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n"
                "app_path: '{{ x }}'\nansible_port: '{{ p }}'\nansible_become: yes\n"
                "ansible_become_password: !vault x\n"
            ),
        }
    )
    why = "encrypted by ansible-vault, so it is not read; state it in the new inventory"
    assert read("a\n") == (
        {"a": {"address": "a", "sudo": "ask"}},
        [
            "group_vars/all/vars.yml:1,4: other variables: left out: an inventory has no such key",
            f"group_vars/all/vars.yml:2: ansible_user: left out: {why}",
            (
                "group_vars/all/vars.yml:5: ansible_port: left out: a template of Ansible; state "
                "its value"
            ),
            (
                "group_vars/all/vars.yml:7: ansible_become_password: left out: a secret; "
                "`sudo: ask` prompts for it"
            ),
            f"group_vars/all/vault.yml:1: $ANSIBLE_VAULT: left out: {why}",
        ],
    )
    Path("group_vars/all/vars.yml").write_text("a: 1\nb: [\n")
    with pytest.raises(AscendbootError, match=r"^group_vars/all/vars.yml:3:1: not YAML: "):
        read("a\n")


def test_words_select_hosts_of_a_file() -> None:
    Path("f").write_text("Host a b github.com\n  User me\nHost c\n  User me\n")
    hosts, _ = hosts_of(["d", "c", "a"], Path("f"))
    assert [(host.name, host.where) for host in hosts] == [("d", "d"), ("a", "f:1"), ("c", "f:3")]


def test_an_empty_word_is_no_host() -> None:
    with pytest.raises(AscendbootError, match=r'^init: "" is no host; write NAME'):
        hosts_of([""])


def test_words_and_a_file_together() -> None:
    Path("f").write_text("c\n")
    hosts, _ = hosts_of(["root@a-[08-09]:2222", "[::1]:22"], Path("f"))
    assert [(host.name, host.where) for host in hosts] == [
        ("a-08", "root@a-[08-09]:2222"),
        ("a-09", "root@a-[08-09]:2222"),
        ("::1", "[::1]:22"),
        ("c", "f:1"),
    ]
